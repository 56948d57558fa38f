"""What a site demands of a session. It works everything out again; the server cannot relax it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...errors import ConfigError, SecureSumFailed
from .codes import AbortCode, abort
from .descriptor import WHOLE_NUMBERS, Mode, Noise, SessionDescriptor
from .graph import num_holders
from .grouping import fewest_groups, group_sizes, group_threshold
from .groups import group_sessions
from .noise import noise_fault
from .share_terms import UNEQUAL_RULES, share_fault
from .sketch_terms import sketch_fault
from .thresholds import share_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class SumPolicy:
    """A site's conditions for taking part in a secure sum.

    Attributes:
        modes: allowed protections.
        min_sites: fewest sites at any stage.
        min_survivors: fewest sites in a sum; a session always needs half of its participants as well.
        min_honest: fewest sites beside the colluding ones in a sum; with 2, either can work out the other's update.
        colluding_percent: how many of the participants must be assumed to collude with the server, rounded up.
        colluding_percent_in_groups: the same for sums over groups, where all of them may be in one group.
        regrouping: whether groups may be drawn anew in every round of a run.
        unequal_weights: whether a sum may weigh one update more than another; its remainders by a common divisor of
            weights then show the others' rest: up to the whole of an update.
        clip_norms: least and greatest clip norm.
        scales: least and greatest scale.
        min_noise_multiplier: least noise in a sum of updates, in units of the clip norm.

    In a session of groups, ``min_sites``, ``min_survivors`` and ``min_honest`` are of every group.

    Raises:
        ConfigError: fewer than 2 honest sites, no share of colluders at all, ranges that hold nothing, negative noise.
    """

    modes: frozenset[Mode] = frozenset({Mode.MASKS})
    min_sites: int = 5
    min_survivors: int = 5
    min_honest: int = 3
    colluding_percent: int = 20
    colluding_percent_in_groups: int = 20
    regrouping: bool = False
    unequal_weights: bool = False
    clip_norms: tuple[float, float] = (1e-6, 1e6)
    scales: tuple[float, float] = (1.0, 2.0**40)
    min_noise_multiplier: float = 0.0

    def __post_init__(self) -> None:
        if self.min_honest < 2:
            raise ConfigError(f"min_honest is {self.min_honest}; a sum with one honest site is that site's update")
        for name in ("colluding_percent", "colluding_percent_in_groups"):
            if not 0 <= getattr(self, name) < 100:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected 0 to 99")
        for name, (low, high) in (("clip_norms", self.clip_norms), ("scales", self.scales)):
            if not 0 < low <= high:
                raise ConfigError(f"{name} is {low} to {high}, expected positive numbers in order")
        if not self.min_noise_multiplier >= 0:
            raise ConfigError(f"min_noise_multiplier is {self.min_noise_multiplier}, expected 0 or more")

    def colluders(self, num_sites: int, mode: Mode = Mode.MASKS) -> int:
        """Fewest colluders that a session of so many sites must withstand."""
        percent = self.colluding_percent_in_groups if mode is Mode.GROUPS else self.colluding_percent
        return -(-num_sites * percent // 100)

    def require(self, session: SessionDescriptor) -> None:
        """Check every inequality on which the secrecy of an update rests.

        Raises:
            SecureSumFailed: "policy", with the first that does not hold; "bad-grouping" for groups that are too small.
        """
        n, c, mode = session.num_sites, session.colluders, session.mode
        expected = self.colluders(n, mode)
        _require(
            (mode in self.modes, f"this site does not allow the protection {mode.name.lower()!r}"),
            *self._noise(session),
            (c >= expected, f"the session withstands {c} colluding sites, this site expects {expected} of {n}"),
            (
                session.whole or self.clip_norms[0] <= session.clip_norm <= self.clip_norms[1],
                f"the clip norm {session.clip_norm:g} is outside {self.clip_norms[0]:g} to {self.clip_norms[1]:g}",
            ),
            (
                self.scales[0] <= session.scale <= self.scales[1],
                f"the scale {session.scale:g} is outside {self.scales[0]:g} to {self.scales[1]:g}",
            ),
        )
        match mode:
            case Mode.MASKS:
                _require(
                    (
                        session.rule in ("mean", WHOLE_NUMBERS),
                        f"the rule {session.rule!r} needs more than a sum of masked updates",
                    )
                )
                self._require_sum(session)
            case Mode.GROUPS:
                self._require_groups(session)
            case Mode.SKETCH | Mode.SHARES:
                fault = sketch_fault(session) if mode is Mode.SKETCH else share_fault(session)
                _require(
                    (fault is None, fault or ""),
                    (
                        self.unequal_weights or session.rule not in UNEQUAL_RULES,
                        f"the rule {session.rule!r} weighs one update more than another, which can show a single one; "
                        "this site does not allow unequal_weights",
                    ),
                )
                self._require_sum(session)

    def require_weights(self, weights: Collection[int]) -> None:
        """Check what the updates in a sum weigh, before it is acknowledged.

        With weights 1024 and otherwise 1023, the sum modulo 1023 is the one update that weighs more. Weights that are
        alike are 1.

        Raises:
            SecureSumFailed: "policy".
        """
        alike = set(weights) == {1}
        reason = f"a sum weighs updates from {min(weights)} to {max(weights)}, this site expects 1 for each"
        _require((self.unequal_weights or alike, reason))

    def _noise(self, session: SessionDescriptor) -> tuple[tuple[bool, str], ...]:
        """That there is enough noise, where noise hides what it is meant to hide; whole numbers as they are."""
        mode, silent, z = session.mode, session.noise is Noise.NONE, session.noise_multiplier
        return (
            (
                session.whole or z >= self.min_noise_multiplier,
                f"the noise multiplier is {z:g}, this site expects at least {self.min_noise_multiplier:g}",
            ),
            (
                silent or mode in (Mode.MASKS, Mode.GROUPS),
                f"noise would drown the distances that the protection {mode.name.lower()!r} is for",
            ),
            (
                silent or not session.weighted,
                "with noise every site weighs the same: a weight would show it up to 1024 times over",
            ),
            (
                not session.whole or (mode is Mode.MASKS and not session.weighted and session.scale == 1),
                "whole numbers are summed under masks, unweighted, with scale 1",
            ),
        )

    def _require_sum(self, session: SessionDescriptor) -> None:
        """One sum of masked updates over all the participants."""
        n, c = session.num_sites, session.colluders
        t = share_threshold(n, c, session.degree)
        survivors = max(self.min_survivors, c + self.min_honest, -(-n // 2))
        _require(
            (
                session.min_sites >= self.min_sites,
                f"min_sites is {session.min_sites}, this site expects {self.min_sites}",
            ),
            (
                session.min_sites - c >= self.min_honest,
                f"min_sites {session.min_sites} less {c} colluders is below {self.min_honest} honest sites",
            ),
            (n >= session.min_sites, f"{n} sites take part, fewer than min_sites {session.min_sites}"),
            (
                session.min_survivors >= survivors,
                f"min_survivors is {session.min_survivors}, this site expects {survivors}",
            ),
            (session.threshold == t, f"the threshold is {session.threshold}, this site works out {t}"),
            (t <= num_holders(n, session.degree), f"{t} shares are needed, more than there are holders"),
            (session.fits, f"a sum of {n} sites can overflow words of {session.ring.value} bits"),
            (not (fault := noise_fault(session)), fault),
        )

    def _require_groups(self, session: SessionDescriptor) -> None:
        """A sum of masked updates in every group, and more groups than attackers can outvote."""
        n, g, f = session.num_sites, session.group_size, session.byzantine
        least = max(2, session.min_sites, self.min_sites)
        if not least <= g <= n:
            reason = f"the session has groups of {g} from {n} sites, this site expects groups of at least {least}"
            raise abort(AbortCode.BAD_GROUPING, reason)
        sizes, t = group_sizes(n, g), group_threshold(n, session.colluders, session.degree, g)
        _require(
            (
                self.regrouping or not session.regroups,
                "this site does not allow groups that change from round to round",
            ),
            (not session.weighted, "sums over groups are not weighted: a weight that is a lie would outweigh the rest"),
            (len(sizes) >= fewest_groups(f), f"{f} attackers can outvote {len(sizes)} groups of {g} from {n} sites"),
            (session.threshold == t, f"the threshold is {session.threshold}, this site works out {t}"),
        )
        for size, group in {group.num_sites: group for group in group_sessions(session)}.items():
            try:
                self._require_sum(group)
            except SecureSumFailed as error:
                raise abort(AbortCode.POLICY, f"in a group of {size}: {error}") from None


def _require(*conditions: tuple[bool, str]) -> None:
    for holds, reason in conditions:
        if not holds:
            raise abort(AbortCode.POLICY, reason)
