"""A rule made ready for use: what it may believe, what is done to the updates before it looks.

Shape suffixes: N updates, D parameters, M mixed rows, K the updates that the rule is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, InvalidUpdate, TooFewExamples, TooFewUpdates
from .aggregate import Aggregate
from .decision import Combination, Decision, WeightedSum
from .engine import NotFinite, combine_into, rows_not_finite, squared_norms
from .kernel_numpy import NumpyKernel
from .mixing import NearestNeighbourMixing
from .protocols import DistanceRule, Rule, SampleRule, expecting, require_count, require_positive
from .rows import ArrayRows, Rows, chosen, stacked
from .shown import Mixing, Shown
from .workers import Threads, Workers

NOT_FINITE = "it holds a value that is not finite"


@dataclass(frozen=True, slots=True)
class Aggregator:
    """A rule, and what comes before it.

    In this order: an update that is not finite, or longer than ``reject_norm``, is refused, and
    the rule is told to expect that many fewer liars (one that withstands none goes on without those
    that are too long); one longer than ``clip_norm`` is scaled back
    to it (Sun et al. 2019, "norm bounding"); the pre-aggregations mix the rows; the rule decides.

    With ``weighting`` "examples" an update's share is min(n_k, max_examples), with "uniform" every
    update on at least one example has the same. The number of examples is what a site says of
    itself, so that a cap bounds what a lie gains, and a robust rule does without by default.

    Raises:
        ConfigError: an unknown weighting, one the rule has no use for, or a bound that is no bound.
    """

    name: str
    rule: Rule
    weighting: Literal["examples", "uniform"] = "uniform"
    max_examples: int | None = None
    pre: tuple[Mixing, ...] = ()
    clip_norm: float | None = None
    reject_norm: float | None = None

    def __post_init__(self) -> None:
        if self.weighting not in ("examples", "uniform"):
            raise ConfigError(f"weighting is {self.weighting!r}, expected 'examples' or 'uniform'")
        if self.weighting == "examples" and not self.rule.weighable:
            raise ConfigError(
                f"{self.name} cannot weigh updates by examples", hint="leave weighting out, or choose another rule"
            )
        if self.max_examples is not None:
            require_count("max_examples", self.max_examples, at_least=1)
        for name, bound in (("clip_norm", self.clip_norm), ("reject_norm", self.reject_norm)):
            if bound is not None:
                require_positive(name, bound)

        if self.clip_norm is not None and self.rule.reference == "history":
            raise ConfigError(
                f"{self.name} judges by sums of whole updates, which clip_norm would not bound",
                hint="take reject_norm, which refuses a longer update",
            )

    def require(self, n: int) -> None:
        """Check that the rule's theorem, and that of each step before it, covers n updates.

        Raises:
            TooFewUpdates: one of them does not.
        """
        for step in self.pre:
            step.require(n)
            n = step.num_mixed(n)
        self.rule.require(n)

    def without(self, num_refused: int, n: int, why: str = "") -> Aggregator:
        """The same, expecting that many fewer liars among the rest of n updates.

        Raises:
            InvalidUpdate: more were refused than it was to withstand.
        """
        if not num_refused:
            return self
        most = _most_liars(self.rule, n) if self.rule.f is None else self.rule.f
        if num_refused > most:
            raise InvalidUpdate(
                f"{num_refused} of {n} updates are worthless, {self.name} is to withstand {most}{why}",
                hint="look at the sites named, or choose a rule that withstands more",
            )
        if self.rule.f is None:
            return self
        pre = tuple(
            replace(step, f=max(0, step.f - num_refused)) if isinstance(step, NearestNeighbourMixing) else step
            for step in self.pre
        )
        return replace(self, rule=expecting(self.rule, self.rule.f - num_refused), pre=pre)

    def shares(self, num_examples_N: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """What each of N updates may weigh: float64, summing to 1; 0 for one that rests on no example.

        Raises:
            InvalidUpdate: a count is no number, negative or not finite.
            TooFewExamples: all counts are 0, or there are none.
        """
        try:
            counts_N = np.asarray(num_examples_N, np.float64)
        except (ValueError, TypeError) as error:
            raise InvalidUpdate(f"the numbers of examples are no numbers: {error}") from None
        if counts_N.ndim != 1:
            raise InvalidUpdate(f"the numbers of examples have shape {counts_N.shape}, expected one per update")
        for index, count in enumerate(counts_N):
            if not 0 <= count < math.inf:
                raise InvalidUpdate(f"update {index} claims to rest on {count:g} examples, expected 0 or more")
        if self.weighting == "uniform":
            shares_N = (counts_N > 0).astype(np.float64)
        else:
            shares_N = np.minimum(counts_N, math.inf if self.max_examples is None else self.max_examples)
        total = math.fsum(shares_N)  # exact: the same whatever the order of the sites
        if total == 0:
            raise TooFewExamples(
                f"the round's {counts_N.size} updates rest on no example at all",
                hint="check that the sites' data loaders find their data",
            )
        return np.asarray(shares_N / total)

    def decide(
        self,
        rows: Rows,
        num_examples_N: npt.ArrayLike,
        *,
        reference: Rows | None = None,
        refused: Mapping[int, str] = MappingProxyType({}),
        seed: int = 0,
        workers: Workers | None = None,
    ) -> Decision:
        """The first pass: whose updates are combined, and how.

        Args:
            rows: the N updates.
            num_examples_N: what each rests on.
            reference: the row (or for a rule on histories the N rows) that the rule wants beside them.
            refused: why, for the index of each update already known to be worthless.
            seed: for what is drawn: buckets, sampled coordinates. A site must not be able to foresee it.
            workers: who computes; None for threads of this process.

        Raises:
            ConfigError: the seed is negative.
            TooFewUpdates: the rule's theorem does not cover what is left of the updates.
            InvalidUpdate: the counts or the reference do not fit the updates, or more updates are
                worthless than the rule withstands.
            TooFewExamples: the updates rest on no example.
            StoreError: a row cannot be read.
        """
        if seed < 0:
            raise ConfigError(f"the seed is {seed}, expected 0 or more")
        workers = workers or Threads()
        shares_N = self.shares(num_examples_N)
        if shares_N.shape != (rows.num_rows,):
            raise InvalidUpdate(f"{shares_N.size} numbers of examples came with {rows.num_rows} updates")
        _require_reference(self, rows, reference)
        factors_N, bounded = self._bounded(rows, workers)
        refused = {**bounded, **refused}
        shown = Shown.of(rows, factors_N, refused, reference, history=self.rule.reference == "history")
        if isinstance(self.rule, DistanceRule) or any(step.needs_distances for step in self.pre):
            shown = shown.measured(workers)
        if isinstance(self.rule, SampleRule):
            shown = shown.sampled(self.rule, seed, workers)
        bad = shown.not_finite(workers)
        refused |= {shown.indices[position]: NOT_FINITE for position in bad}
        shown = shown.without(bad)
        why = "".join(f"; update {index}: {reason}" for index, reason in sorted(refused.items()))
        # A rule that withstands nobody has the bound instead, and goes on without whoever exceeds it.
        too_long = {index for index, reason in bounded.items() if reason != NOT_FINITE}
        able = self.without(len(refused.keys() - too_long) if self.rule.f == 0 else len(refused), rows.num_rows, why)
        able.require(len(shown.indices))
        return replace(shown.decide(able.rule, able.pre, shares_N, seed), refused=refused)

    def __call__(
        self,
        updates: Rows | npt.ArrayLike,
        num_examples_N: npt.ArrayLike | None = None,
        reference: Rows | npt.ArrayLike | None = None,
        *,
        seed: int = 0,
    ) -> Aggregate:
        """Aggregate updates and hold the result in memory.

        Args:
            updates: a row store, or an N x D array of real numbers. Integers give integers of the
                same dtype, rounded half to even; everything else gives float32.
            num_examples_N: what each update rests on; None counts each as 1.
            reference: as for ``decide``, also as an array.
            seed: as for ``decide``.

        Raises:
            InvalidUpdate, TooFewUpdates, TooFewExamples: as ``decide``; also where an update that is
                not finite would be read and the rule withstands none.
        """
        rows = as_rows(updates)
        counts_N = np.ones(rows.num_rows) if num_examples_N is None else num_examples_N
        beside = None if reference is None else as_rows(reference)
        decision = self.decide(rows, counts_N, reference=beside, seed=seed)
        try:
            update_D = _combined(rows, beside, decision.combination)
        except NotFinite:
            # Looked for only now, so that a round of good updates pays for no scan of its own.
            refused = dict.fromkeys(set(rows_not_finite(rows)) & set(decision.selected), NOT_FINITE)
            if not refused:
                raise InvalidUpdate("the updates are finite, but what they add up to is not") from None
            decision = self.decide(rows, counts_N, reference=beside, refused=refused, seed=seed)
            update_D = _combined(rows, beside, decision.combination)
        weights_N = decision.weights_N
        return Aggregate(
            update_D=update_D,
            weights_N=None if weights_N is None else weights_N[: rows.num_rows],
            selected=decision.selected,
            rejected=tuple(sorted(set(range(rows.num_rows)) - set(decision.selected))),
            scores=decision.scores_N,
            refused=decision.refused,
            cliques=decision.cliques,
        )

    def _bounded(self, rows: Rows, workers: Workers) -> tuple[npt.NDArray[np.float64], dict[int, str]]:
        """What each update is scaled by, and why some have no length or one that is not accepted."""
        factors_N = np.ones(rows.num_rows)
        if self.clip_norm is None and self.reject_norm is None:
            return factors_N, {}
        norms_N = np.sqrt(squared_norms(rows, workers=workers))
        suspects = np.flatnonzero(~np.isfinite(norms_N)).tolist()
        bad = {suspects[k] for k in rows_not_finite(chosen(rows, suspects), workers=workers)} if suspects else set()
        limit = math.inf if self.reject_norm is None else self.reject_norm
        refused = too_long(norms_N, limit) | dict.fromkeys(bad, NOT_FINITE)
        if self.clip_norm is not None:
            taken = [index for index in range(rows.num_rows) if index not in refused]
            factors_N[taken] = self.clip_norm / np.maximum(norms_N[taken], self.clip_norm)
        return factors_N, refused


def _most_liars(rule: Rule, n: int) -> int:
    """The largest f under which the rule's theorem still covers n updates."""
    for f in range(n - 1, 0, -1):
        with suppress(TooFewUpdates):
            expecting(rule, f).require(n)
            return f
    return 0


def too_long(norms_N: npt.NDArray[np.float64], limit: float) -> dict[int, str]:
    """Why each update with a norm above the limit is refused, by its index."""
    return {
        index: f"its norm is {norms_N[index]:.3g}, at most {limit:g} is accepted"
        for index in np.flatnonzero(norms_N > limit).tolist()
    }


def as_rows(updates: Rows | npt.ArrayLike) -> Rows:
    """Updates as a row store.

    Raises:
        InvalidUpdate: they are no N x D array of real numbers.
    """
    if isinstance(updates, Rows):
        return updates
    try:
        return ArrayRows(np.asarray(updates))
    except ValueError as error:  # rows of different lengths
        raise InvalidUpdate(f"the updates do not have one shape: {error}") from None
    except (TypeError, RuntimeError) as error:  # tensors that numpy cannot read
        hint = "hand in numpy arrays; of a tensor, tensor.detach().float().cpu().numpy()"
        raise InvalidUpdate(f"the updates cannot be read as arrays: {error}", hint=hint) from None


def _combined(rows: Rows, reference: Rows | None, combination: Combination) -> npt.NDArray[Any]:
    if isinstance(combination, WeightedSum) and combination.weights_N.size > rows.num_rows and reference is not None:
        rows = stacked(rows, reference)
    if isinstance(rows, ArrayRows) and np.issubdtype(rows.updates_ND.dtype, np.integer):
        exact_D = np.empty(rows.num_columns, np.float64)
        combine_into(exact_D, ArrayRows(rows.updates_ND, np.float64), combination, kernel=NumpyKernel())
        return _rounded(exact_D, rows.updates_ND.dtype)
    update_D = np.empty(rows.num_columns, np.float32)
    if not combine_into(update_D, rows, combination):
        raise NotFinite("what the updates add up to is not finite")
    return update_D


def _rounded(exact_D: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Integers, half to even; the largest or smallest of them for what lies beyond."""
    info = np.iinfo(dtype)
    with np.errstate(invalid="ignore"):
        rounded_D = np.rint(exact_D).astype(dtype)
    # As float64 the largest 64-bit integer is one more than it is.
    rounded_D[exact_D >= float(info.max)] = info.max
    rounded_D[exact_D <= float(info.min)] = info.min
    return rounded_D


def _require_reference(aggregator: Aggregator, rows: Rows, reference: Rows | None) -> None:
    wanted = {"none": (0,), "optional": (0, 1), "required": (1,), "history": (0, rows.num_rows)}
    num_rows = 0 if reference is None else reference.num_rows
    if num_rows not in wanted[aggregator.rule.reference]:
        raise InvalidUpdate(
            f"{aggregator.name} got {num_rows} reference rows, expected "
            + " or ".join(map(str, wanted[aggregator.rule.reference]))
        )
    if reference is not None and reference.num_columns != rows.num_columns:
        raise InvalidUpdate(f"the reference has {reference.num_columns} values, the updates have {rows.num_columns}")
