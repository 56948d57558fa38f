"""What a rule is shown of a round, and how its decision reads for all the updates.

Shape suffixes: N updates, K those that are shown, M rows mixed of them, S sampled columns.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import InvalidUpdate, TooFewExamples
from .decision import Combination, Coordinatewise, Decision, WeightedSum
from .engine import rows_not_finite, sampled_columns, squared_distances
from .geometry import Geometry
from .mixing import Bucketing, NearestNeighbourMixing, mixed
from .protocols import DistanceRule, PlainRule, Rule, SampleRule
from .rows import Rows, ScaledRows, chosen, stacked
from .workers import Workers

Mixing: TypeAlias = NearestNeighbourMixing | Bucketing


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The updates that were not refused.

    Attributes:
        rows: what distances are measured between: the updates, scaled, and the reference behind
            them; for a rule on histories, the histories.
        indices: of the K updates among all N.
        factors_K: what each update is scaled by.
        num_updates: N.
        num_references: how many rows are no update of the round.
        geometry: of the rows, once it was measured.
        samples: the geometry of the rows in each random sample of columns, once it was measured.
    """

    rows: Rows
    indices: tuple[int, ...]
    factors_K: npt.NDArray[np.float64]
    num_updates: int
    num_references: int
    geometry: Geometry | None = None
    samples: tuple[Geometry, ...] = ()

    @staticmethod
    def of(
        rows: Rows,
        factors_N: npt.NDArray[np.float64],
        refused: Collection[int],
        reference: Rows | None,
        *,
        history: bool,
    ) -> Shown:
        """All updates but the refused ones."""
        indices = tuple(index for index in range(rows.num_rows) if index not in refused)
        factors_K = factors_N[list(indices)]
        if history and reference is not None:
            return Shown(chosen(reference, indices), indices, factors_K, rows.num_rows, 0)
        updates = chosen(rows, indices)
        if (factors_K != 1).any():
            updates = ScaledRows(updates, factors_K)
        if reference is None:
            return Shown(updates, indices, factors_K, rows.num_rows, 0)
        return Shown(stacked(updates, reference), indices, factors_K, rows.num_rows, reference.num_rows)

    def measured(self, workers: Workers) -> Shown:
        """With its geometry."""
        return replace(self, geometry=Geometry(squared_distances(self.rows, workers=workers), self.num_references))

    def sampled(self, rule: SampleRule, seed: int, workers: Workers) -> Shown:
        """With the samples that the rule wants."""
        num_columns, generator = self.rows.num_columns, np.random.default_rng(seed)
        if rule.coordinates >= num_columns:
            whole = Geometry(squared_distances(self.rows, workers=workers), self.num_references)
            return replace(self, samples=(whole,) * rule.samples)
        samples = []
        for _ in range(rule.samples):
            columns_S = np.sort(generator.choice(num_columns, rule.coordinates, replace=False, shuffle=False))
            sample = sampled_columns(self.rows, columns_S)
            samples.append(Geometry(squared_distances(sample, workers=workers), self.num_references))
        return replace(self, samples=tuple(samples))

    def not_finite(self, workers: Workers) -> tuple[int, ...]:
        """The positions of updates that hold NaN or an infinity; only rows of infinite length are looked at.

        Raises:
            InvalidUpdate: a reference row does.
        """
        measured = [geometry for geometry in (self.geometry, *self.samples) if geometry is not None]
        suspects = sorted({k for g in measured for k in np.flatnonzero(~np.isfinite(g.squared_PP[:-1, -1])).tolist()})
        if not suspects:
            return ()
        bad = tuple(suspects[k] for k in rows_not_finite(chosen(self.rows, suspects), workers=workers))
        if any(position >= len(self.indices) for position in bad):
            raise InvalidUpdate("the reference holds a value that is not finite")
        return bad

    def without(self, positions: Collection[int]) -> Shown:
        """The other updates."""
        if not positions:
            return self
        kept = [position for position in range(self.rows.num_rows) if position not in positions]
        updates = kept[: len(self.indices) - len(positions)]
        return replace(
            self,
            rows=chosen(self.rows, kept),
            indices=tuple(self.indices[position] for position in updates),
            factors_K=self.factors_K[updates],
            geometry=self.geometry and self.geometry.without(positions),
            samples=tuple(sample.without(positions) for sample in self.samples),
        )

    def decide(self, rule: Rule, pre: tuple[Mixing, ...], shares_N: npt.NDArray[np.float64], seed: int) -> Decision:
        """What the rule decides of the mixed rows, told of all N updates; each has the score of its own mixture.

        Raises:
            TooFewUpdates: as the rule and the mixings.
            TooFewExamples: the updates rest on no example.
        """
        mix_MK, mixture_K = np.eye(len(self.indices)), np.arange(len(self.indices))
        geometry = self.geometry
        for step in pre:
            step_MM = step.mix(len(mix_MK), geometry, seed)
            mix_MK = step_MM @ mix_MK
            if isinstance(step, Bucketing):  # mixing by neighbours keeps each in its place
                mixture_K = np.argmax(step_MM[:, mixture_K] > 0, axis=0)
            geometry = geometry and mixed(geometry, step_MM)
        shares_M = mix_MK @ shares_N[list(self.indices)]
        if not shares_M.any():
            raise TooFewExamples(
                f"the {len(self.indices)} updates that were not refused rest on no example at all",
                hint="check that the sites' data loaders find their data",
            )
        shares_M = shares_M / shares_M.sum()
        match rule:
            case PlainRule():
                decision = rule.decide(shares_M)
            case SampleRule():
                samples = [mixed(sample, mix_MK) if pre else sample for sample in self.samples]
                decision = rule.judge_samples(samples, shares_M)
            case DistanceRule():
                assert geometry is not None  # noqa: S101  (measured for every such rule)
                decision = rule.judge(geometry, shares_M)
        cliques = () if self.geometry is None else self.geometry.cliques
        return replace(
            self._told(decision, mix_MK if pre else None, mixture_K),
            cliques=tuple(tuple(self.indices[k] for k in clique) for clique in cliques),
        )

    def _told(
        self, decision: Decision, mix_MK: npt.NDArray[np.float64] | None, mixture_K: npt.NDArray[np.intp]
    ) -> Decision:
        combination = self._unmixed(decision.combination, mix_MK)
        selected = tuple(index for index in combination.used if index < self.num_updates)
        scores_N = None
        if decision.scores_N is not None:
            scores_N = np.full(self.num_updates, np.inf)
            scores_N[list(self.indices)] = decision.scores_N[mixture_K]
        return Decision(combination, selected, scores_N)

    def _unmixed(self, combination: Combination, mix_MK: npt.NDArray[np.float64] | None) -> Combination:
        """The combination of N updates that a combination of the mixed rows stands for."""
        places, K = list(self.indices), len(self.indices)
        match combination:
            case WeightedSum(weights_M):
                num_mixed = K if mix_MK is None else len(mix_MK)
                weights_K = weights_M[:num_mixed] if mix_MK is None else weights_M[:num_mixed] @ mix_MK
                weights_N = np.zeros(self.num_updates)
                weights_N[places] = weights_K * self.factors_K
                return WeightedSum(np.concatenate([weights_N, weights_M[num_mixed:]]))
            case Coordinatewise(statistic, taken, _):
                if mix_MK is None and (self.factors_K == 1).all():
                    return Coordinatewise(statistic, tuple(self.indices[k] for k in taken))
                mix_MK = np.eye(K) if mix_MK is None else mix_MK
                mix_MN = np.zeros((len(mix_MK), self.num_updates))
                mix_MN[:, places] = mix_MK * self.factors_K
                return Coordinatewise(statistic, taken, mix_MN)
