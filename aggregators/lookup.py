"""Rules by name, foedus's own and those that other packages bring.

A package brings a rule with an entry point in the group ``foedus.aggregators``: its name is the
rule's, its object is called with the rule's parameters and returns a ``Rule``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, Literal

import numpy as np

from ..errors import ConfigError
from ..named import nearest, require_parameters
from .aggregator import Aggregator
from .bulyan import Bulyan
from .centered_clipping import CenteredClipping
from .coordinatewise import MeanAroundMedian, Median, TrimmedMean
from .dnc import DivideAndConquer
from .fltrust import FLTrust
from .foolsgold import FoolsGold
from .geometric_median import GeometricMedian
from .krum import Krum, MultiKrum
from .mda import MinimumDiameter
from .mean import Mean
from .mixing import Bucketing, NearestNeighbourMixing
from .protocols import DistanceRule, PlainRule, Rule, SampleRule
from .shown import Mixing

GROUP = "foedus.aggregators"

_RULES: dict[str, Callable[..., Rule]] = {
    "mean": Mean,
    "krum": Krum,
    "multi-krum": MultiKrum,
    "bulyan": Bulyan,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "meamed": MeanAroundMedian,
    "geometric-median": GeometricMedian,
    "centered-clipping": CenteredClipping,
    "mda": MinimumDiameter,
    "dnc": DivideAndConquer,
    "fltrust": FLTrust,
    "foolsgold": FoolsGold,
}
_PRE = ("nnm", "bucketing")
# What every rule may be given, as `rule` takes it.
_FOR_ALL = ("weighting", "max_examples", "pre", "buckets", "clip_norm", "reject_norm")


def rule(
    name: str,
    *,
    weighting: Literal["examples", "uniform"] | None = None,
    max_examples: int | None = None,
    pre: Sequence[str] = (),
    buckets: int = 2,
    clip_norm: float | None = None,
    reject_norm: float | None = None,
    **parameters: Any,
) -> Aggregator:
    """The rule called ``name``, ready for use: ``rule("krum", f=1)(updates_ND).update_D``.

    foedus's own rules come first: a package cannot take the place of "mean".

    Args:
        name: such as "multi-krum".
        weighting: what an update may weigh; by default "examples" for the mean and "uniform" for
            every other rule, which a liar's count must not move.
        max_examples: the most examples that are believed of one update.
        pre: "nnm" and "bucketing", in the order in which they mix the updates.
        buckets: how many updates share a bucket.
        clip_norm: the norm that longer updates are scaled back to.
        reject_norm: the norm beyond which an update is refused.
        parameters: the rule's own, such as ``f`` and ``m``.

    Raises:
        ConfigError: no such rule, or it does not take these parameters.
    """
    make = _RULES.get(name) or _from_packages(name)
    parameters = {key: value.item() if isinstance(value, np.generic) else value for key, value in parameters.items()}
    require_parameters(f"aggregator {name!r}", make, parameters, beside=_FOR_ALL)
    made = make(**parameters)
    if not isinstance(made, PlainRule | DistanceRule | SampleRule) or not hasattr(made, "__dataclass_fields__"):
        raise ConfigError(
            f"aggregator {name!r} is a {type(made).__name__}, which is no rule: a dataclass that can decide or judge"
        )
    return Aggregator(
        name=name,
        rule=made,
        weighting=weighting or ("examples" if isinstance(made, Mean) else "uniform"),
        max_examples=max_examples,
        pre=tuple(_mixing(step, made, buckets) for step in ((pre,) if isinstance(pre, str) else pre)),
        clip_norm=clip_norm,
        reject_norm=reject_norm,
    )


def _mixing(name: str, rule: Rule, buckets: int) -> Mixing:
    match name:
        case "nnm":
            f = None if isinstance(rule, Mean) else rule.f
            if f is None:  # every mixture would be the mean of all, liars included
                raise ConfigError("nnm must know how many liars to expect", hint="give f to the rule it comes before")
            return NearestNeighbourMixing(f)
        case "bucketing":
            return Bucketing(buckets)
        case _:
            raise ConfigError(f"there is no pre-aggregation {name!r}", hint=nearest(name, _PRE))


def _from_packages(name: str) -> Callable[..., Rule]:
    found = entry_points(group=GROUP)
    if name not in found.names:
        raise ConfigError(f"there is no aggregator {name!r}", hint=nearest(name, sorted({*_RULES, *found.names})))
    try:
        make: Callable[..., Rule] = found[name].load()
    except Exception as error:
        raise ConfigError(f"aggregator {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    makes = inspect.isfunction(make) or inspect.isclass(make)
    if not makes:
        raise ConfigError(
            f"aggregator {name!r} is a {type(make).__name__}, expected a class or function that makes a rule"
        )
    return make
