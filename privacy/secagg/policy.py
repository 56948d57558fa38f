"""What a site demands of a session. It works everything out again; the server cannot relax it."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import ConfigError
from .codes import AbortCode, abort
from .descriptor import Mode, Noise, SessionDescriptor
from .graph import num_holders
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
        clip_norms: least and greatest clip norm.
        scales: least and greatest scale.

    Raises:
        ConfigError: fewer than 2 honest sites, no share of colluders at all, or ranges that hold nothing.
    """

    modes: frozenset[Mode] = frozenset({Mode.MASKS})
    min_sites: int = 5
    min_survivors: int = 5
    min_honest: int = 3
    colluding_percent: int = 20
    clip_norms: tuple[float, float] = (1e-6, 1e6)
    scales: tuple[float, float] = (1.0, 2.0**40)

    def __post_init__(self) -> None:
        if self.min_honest < 2:
            raise ConfigError(f"min_honest is {self.min_honest}; a sum with one honest site is that site's update")
        if not 0 <= self.colluding_percent < 100:
            raise ConfigError(f"colluding_percent is {self.colluding_percent}, expected 0 to 99")
        for name, (low, high) in (("clip_norms", self.clip_norms), ("scales", self.scales)):
            if not 0 < low <= high:
                raise ConfigError(f"{name} is {low} to {high}, expected positive numbers in order")

    def colluders(self, num_sites: int) -> int:
        """Fewest colluders that a session of so many sites must withstand."""
        return -(-num_sites * self.colluding_percent // 100)

    def require(self, session: SessionDescriptor) -> None:
        """Check every inequality on which the secrecy of an update rests.

        Raises:
            SecureSumFailed: "policy", with the first that does not hold.
        """
        n, c = session.num_sites, session.colluders
        t = share_threshold(n, c, session.degree)
        for holds, reason in (
            (session.mode in self.modes, f"this site does not allow the protection {session.mode.name.lower()!r}"),
            (session.mode is Mode.MASKS, f"there is no protection {session.mode.name.lower()!r} yet"),
            (session.noise is Noise.NONE, "there is no distributed noise yet"),
            (session.rule == "mean", f"the rule {session.rule!r} needs more than a sum of masked updates"),
            (
                c >= self.colluders(n),
                f"the session withstands {c} colluding sites, this site expects {self.colluders(n)} of {n}",
            ),
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
                session.min_survivors >= max(self.min_survivors, c + self.min_honest, -(-n // 2)),
                f"min_survivors is {session.min_survivors}, this site expects "
                f"{max(self.min_survivors, c + self.min_honest, -(-n // 2))}",
            ),
            (session.threshold == t, f"the threshold is {session.threshold}, this site works out {t}"),
            (t <= num_holders(n, session.degree), f"{t} shares are needed, more than there are holders"),
            (session.fits, f"a sum of {n} sites can overflow words of {session.ring.value} bits"),
            (
                self.clip_norms[0] <= session.clip_norm <= self.clip_norms[1],
                f"the clip norm {session.clip_norm:g} is outside {self.clip_norms[0]:g} to {self.clip_norms[1]:g}",
            ),
            (
                self.scales[0] <= session.scale <= self.scales[1],
                f"the scale {session.scale:g} is outside {self.scales[0]:g} to {self.scales[1]:g}",
            ),
        ):
            if not holds:
                raise abort(AbortCode.POLICY, reason)
