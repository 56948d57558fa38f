from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest
from foedus.aggregators import lookup, rule
from foedus.aggregators.aggregate import Aggregate
from foedus.aggregators.mean import Mean
from foedus.errors import ConfigError


def first_only(scale: float = 1.0):  # type: ignore[no-untyped-def]
    """A rule as another package would bring it."""
    return lambda updates_ND, num_examples_N=None: Aggregate(scale * updates_ND[0], None, (0,), (1,))


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_group(group: str) -> EntryPoints:
        assert group == "foedus.aggregators"
        return EntryPoints(EntryPoint(name, f"{__name__}:first_only", group) for name in ("first", "mean"))

    monkeypatch.setattr(lookup, "entry_points", of_group)


def test_an_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no aggregator 'maen'") as caught:
        rule("maen")
    assert caught.value.hint == "did you mean mean?"
    with pytest.raises(ConfigError) as caught:
        rule("zzz")
    assert caught.value.hint == "known: mean"


def test_an_unknown_parameter_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"aggregator 'mean'.*max_example'") as caught:
        rule("mean", max_example=3)
    assert caught.value.hint == "did you mean max_examples?"


@pytest.mark.usefixtures("packaged")
def test_packages_may_bring_rules_but_not_replace_ours() -> None:
    result = rule("first", scale=2.0)(np.ones((2, 3)))
    np.testing.assert_array_equal(result.update_D, [2, 2, 2])
    assert isinstance(rule("mean"), Mean)


def test_importing_the_folder_imports_no_numpy() -> None:
    code = "import sys, foedus.aggregators; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
