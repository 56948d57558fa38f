from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from typing import ClassVar

import numpy as np
import pytest
from foedus.aggregators import lookup, rule
from foedus.aggregators.decision import Decision, WeightedSum
from foedus.aggregators.mean import Mean
from foedus.errors import ConfigError


@dataclass(frozen=True)
class First:
    """A rule as another package would bring it: its ``scale`` times the first update."""

    weighable: ClassVar[bool] = False
    reference: ClassVar[str] = "none"
    scale: float = 1.0
    f: int = 0

    def require(self, n: int) -> None: ...

    def decide(self, shares_N: np.ndarray) -> Decision:
        return Decision(WeightedSum(self.scale * np.eye(len(shares_N))[0]), (0,))


def no_rule() -> int:
    return 7


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_group(group: str) -> EntryPoints:
        assert group == "foedus.aggregators"
        brought = {"first": "First", "mean": "First", "nonsense": "no_rule", "absent": "Absent"}
        return EntryPoints(EntryPoint(name, f"{__name__}:{made}", group) for name, made in brought.items())

    monkeypatch.setattr(lookup, "entry_points", of_group)


def test_an_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no aggregator 'maen'") as caught:
        rule("maen")
    assert caught.value.hint == "did you mean mean?"
    with pytest.raises(ConfigError) as caught:
        rule("zzz")
    assert caught.value.hint.startswith("known: bulyan, centered-clipping, dnc, ")


def test_an_unknown_parameter_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"aggregator 'mean'.*max_example'") as caught:
        rule("mean", max_example=3)
    assert caught.value.hint == "did you mean max_examples?"


@pytest.mark.usefixtures("packaged")
def test_packages_may_bring_rules_but_not_replace_ours() -> None:
    result = rule("first", scale=2.0)(np.ones((2, 3)))
    np.testing.assert_array_equal(result.update_D, [2, 2, 2])
    assert (result.selected, result.rejected) == ((0,), (1,))
    assert isinstance(rule("mean").rule, Mean)
    with pytest.raises(ConfigError, match="'nonsense' is a int, which is no rule"):
        rule("nonsense")
    with pytest.raises(ConfigError, match="'absent' cannot be loaded: AttributeError"):
        rule("absent")


def test_importing_the_folder_imports_no_numpy() -> None:
    code = "import sys, foedus.aggregators; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
