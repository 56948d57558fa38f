import importlib.util
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location(
    "federation_for_tests", Path(__file__).with_name("federation_for_tests.py")
)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)


@pytest.fixture
def federation():
    """Makes federations that run on loopback: ``federation(approve_after=2)``."""
    return _MODULE.Federation
