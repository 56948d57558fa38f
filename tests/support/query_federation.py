"""Real sites with records on a loopback server: who has what is known, so that every answer can be checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.client_sdk.config import RecordsEntry, records_toml
from foedus.client_sdk.home import SiteHome
from foedus.privacy.analytics.query import Query
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import show_query
from loopback import Loopback, loopback
from secure_federation import enrolled, sign_roster

# While there is a file "hold" beside it, the records are not there yet; half a minute at most, should a test fail.
RECORDS = """
import pathlib, time

def records(ages, sexes, people):
    hold, last = pathlib.Path(__file__).parent / "hold", time.monotonic() + 30
    while hold.exists() and time.monotonic() < last:
        time.sleep(0.01)
    return {"age": ages, "sex": sexes, "patient": people}
"""
POLICY = '\n[analytics]\ncolumns = ["age", "sex"]\n'


def ages_of(place: int) -> list[float]:
    """The records of a site by its number: 20 to 40 whole ages."""
    random = np.random.default_rng(place)
    return [float(age) for age in random.integers(18, 100, random.integers(20, 40))]


def sexes_of(place: int) -> list[str]:
    """As many."""
    random = np.random.default_rng(100 + place)
    return [str(sex) for sex in random.choice(["f", "m", "x"], len(ages_of(place)))]


@dataclass
class QueryTrial:
    """A server, its operator and the homes of its sites."""

    local: Loopback
    operator: Ed25519PrivateKey
    homes: list[SiteHome]

    async def submit(self, query: Query) -> str:
        """Its id."""
        request = operations_pb2.SubmitQueryRequest(query_json=query.model_dump_json())
        return (await self.local.operator().SubmitQuery(request)).id

    async def ended(self, id: str) -> operations_pb2.Query:
        """Once it is answered, or has failed."""
        shown = await show_query(self.local.operator(), id, 60.0)
        assert shown.state in ("answered", "failed")
        return shown

    async def ask(self, query: Query) -> operations_pb2.Query:
        return await self.ended(await self.submit(query))


@asynccontextmanager
async def query_trial(
    folder: Path, num_sites: int = 5, *, policies: Sequence[str] = (), signed: bool = True, **settings: Any
) -> AsyncIterator[QueryTrial]:
    """So many sites, the first with the policies given instead of the usual one."""
    async with loopback(folder, **settings) as local:
        operator, homes = Ed25519PrivateKey.generate(), []
        for place in range(num_sites):
            home = await enrolled(local, operator, f"site-{place}", 0.0)
            add_records(home, ages_of(place), sexes_of(place))
            with home.policy.open("a") as file:
                file.write(policies[place] if place < len(policies) else POLICY)
            homes.append(home)
        if signed:
            sign_roster(local, operator)
        yield QueryTrial(local, operator, homes)


def add_records(home: SiteHome, ages: Sequence[object], sexes: Sequence[object], person: str | None = None) -> None:
    """Let a site be asked about these."""
    (home.path / "records.py").write_text(RECORDS)
    people = [f"p{number // 2}" for number in range(len(ages))]
    parameters = {"ages": list(ages), "sexes": list(sexes), "people": people}
    with home.config.open("a") as file:
        file.write(records_toml(RecordsEntry(entry="records.py:records", parameters=parameters, person=person)))


def asked(*questions: dict[str, Any], **outer: Any) -> Query:
    """A query with no floor, so that a test sees what is counted."""
    return Query.model_validate({"name": "q", "withhold_below": 0, "questions": questions} | outer)
