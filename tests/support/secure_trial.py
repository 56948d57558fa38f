"""Masked runs of five real sites on a loopback server, whose sum is known, and raw sites beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.client_sdk.home import SiteHome
from foedus.client_sdk.sum_store import SumStore
from foedus.layout import layout_of
from foedus.modelfile import Model
from foedus.plan import Plan
from foedus.privacy.secagg.state import SiteState
from foedus.protos.messages import Phase, Work
from loopback import Loopback, loopback, plan
from raw_sums import RawMember, raw_member
from secure_federation import enrolled, sign_roster

VALUES = (0.5, -1.0, 2.0, 0.25, 1.0)
ARRAYS = {"w": np.zeros(3, np.float32)}
LAYOUT = layout_of(ARRAYS)


def secure_plan(num_sites: int = 5, **changes: object) -> Plan:
    """One masked round that waits for so many sites; five are enough."""
    values: dict[str, object] = {
        "protection": "masks",
        "cohort": {"minimum": num_sites, "quorum": 5, "deadline_seconds": 30},
        "aggregator": {"weighting": "uniform"},
        "secure": {"scale": 1024},
        **changes,
    }
    return plan(**values)


def initial(value: float = 0.0) -> Model:
    """Three times the same value."""
    return Model.of(LAYOUT, {"w": np.full(3, value, np.float32)})


@dataclass
class SecureTrial:
    """A server, its operator and what was enrolled."""

    local: Loopback
    operator: Ed25519PrivateKey
    homes: list[SiteHome] = field(default_factory=list)

    async def enrol(self, *values: float, policy: str = "", names: tuple[str, ...] = ()) -> list[SiteHome]:
        """Homes of sites that add these values."""
        first = len(self.homes)
        names = names or tuple(f"site-{first + n}" for n in range(len(values)))
        made = [
            await enrolled(self.local, self.operator, name, value, policy=policy)
            for name, value in zip(names, values, strict=True)
        ]
        self.homes += made
        return made

    def sign(self) -> None:
        """Sign a roster of everybody there is."""
        sign_roster(self.local, self.operator)

    async def raw(self, home: SiteHome) -> RawMember:
        """The site as one that speaks by hand."""
        return await raw_member(self.local, home, LAYOUT)

    async def submit(self, wanted: Plan | None = None, start: float = 0.0) -> str:
        """Start a run; its id."""
        return await self.local.submit(wanted or secure_plan(), initial(start))

    async def is_the_mean_of(self, run: str, *values: float, start: float = 0.0):
        """The run as shown, which has ended well and in exactly this."""
        shown = await self.local.ended(run)
        assert (shown.state, shown.reason) == ("finished", ""), (shown.state, shown.reason)
        expected = np.full(3, np.float32(start) + np.float32(np.mean(values)))
        np.testing.assert_array_equal(self.local.model(shown.last_sha256).trainable_D, expected)
        return shown

    def verdicts(self, run: str, round: int = 1) -> dict[str, str]:
        """What became of each site."""
        parts = self.local.fed.participations.in_phase(run, round, Phase.TRAIN)
        return {part.site: str(part.verdict) for part in parts}

    def reason(self, run: str, site: str, round: int = 1) -> str:
        """Code and reason of what became of a site."""
        part = self.local.fed.participations.find(Work(run, round, Phase.TRAIN), site)
        return f"{part.code}: {part.reason}"

    def attempt(self, run: str, round: int = 1) -> int:
        """The number of the latest attempt."""
        return self.local.fed.rounds.find(run, round).attempt

    def phase(self, run: str, round: int = 1):
        """Which messages the secure sum collects; None where there is none."""
        session = self.local.fed.sums.find(Work(run, round, Phase.TRAIN))
        return session.state.phase if session else None

    async def until(self, condition, what: str, seconds: float = 60.0) -> None:
        """Wait for a condition of the server's or a site's state."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s: {what}") from None

    def hold(self, *homes: SiteHome) -> None:
        """Training begins to wait."""
        for home in homes:
            (home.path / "hold").touch()

    def let_go(self, *homes: SiteHome) -> None:
        """Training goes on."""
        for home in homes:
            (home.path / "hold").unlink()

    def trained(self, home: SiteHome) -> list[str]:
        """The rounds in which a site has trained, as often as it did."""
        path = home.path / "trained"
        return path.read_text().split() if path.exists() else []


@asynccontextmanager
async def secure_trial(folder: Path, **settings: object) -> AsyncIterator[SecureTrial]:
    """A server whose operator has a roster key; nobody is enrolled."""
    async with loopback(folder, **settings) as local:
        yield SecureTrial(local, Ed25519PrivateKey.generate())


def kept(home: SiteHome, run: str, round: int = 1) -> SiteState | None:
    """What a site that is not running has kept of a session."""
    store = SumStore.open(home.sums)
    try:
        return store.find(run, round)
    finally:
        store.close()
