import importlib.util
import sys
from pathlib import Path

import psutil
import pytest


def _load(name):
    spec = importlib.util.spec_from_file_location(f"foedus_faults_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


harness, lines = _load("harness"), _load("proxy")


@pytest.fixture(autouse=True, scope="module")
def no_process_is_left():
    """Every process that a test of this module started has ended with it."""
    yield
    left = psutil.Process().children(recursive=True)
    assert not left, f"processes are left: {[process.cmdline() for process in left]}"


@pytest.fixture
def new_trial(tmp_path):
    """Makes federations; the server is started, sites are not there yet."""
    made = []

    def make(*, start=True, **settings):
        folder = tmp_path / f"trial{len(made)}"
        folder.mkdir()
        made.append(harness.Trial(folder, **settings))
        if start:
            made[-1].fed.start_server()
        return made[-1]

    yield make
    for trial in made:
        trial.__exit__(None, None, None)


@pytest.fixture(scope="module")
def module_trial():
    """Makes one federation for a whole module, without a server."""
    made = []

    def make(folder, **settings):
        made.append(harness.Trial(folder, **settings))
        return made[-1]

    yield make
    for trial in made:
        trial.__exit__(None, None, None)


@pytest.fixture
def trial(new_trial):
    """A federation whose server runs."""
    return new_trial()


@pytest.fixture
def proxy(trial):
    """A line between a site and the trial's server that can be made bad."""
    with lines.Proxy(trial.fed.port) as proxy:
        yield proxy


@pytest.fixture
def proxies():
    """The module with ``Proxy``, for tests that make their own."""
    return lines


@pytest.fixture(scope="session")
def secure():
    """The module with what masked runs of real processes need."""
    return _load("secure_sites")
