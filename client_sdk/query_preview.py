"""What would leave the site in answer to a query, written down instead of sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from ..configuration import load
from ..errors import SiteVeto, TaskFailed
from ..files import private_folder, write_private
from ..privacy.analytics.answer import Integers
from ..privacy.analytics.counters import num_records
from ..privacy.analytics.query import Query
from ..privacy.analytics.sessions import session_fields
from ..privacy.secagg.descriptor import SessionDescriptor
from ..privacy.secagg.policy import SumPolicy
from ..privacy.secagg.prg import Suite
from ..privacy.secagg.roster import Roster
from ..privacy.secagg.thresholds import share_threshold
from ..protos.messages import Phase, Refusal, Work
from .config import SiteConfig
from .holds import words_hold
from .home import SiteHome
from .policy import Policy
from .questions import require_allowed
from .records import read_records
from .rehearsal import Rehearsal, play

RUN = "preview"  # stands for the query's id, which only a server can give
REASON = "which condition of the policy does not hold, or that the records could not be read; never a value of one"


def preview_query(home: Path, path: Path, folder: Path) -> dict[str, Any]:
    """Count this site's records for a query and write ``query.bin`` and ``query.json`` to ``folder``.

    The masked words and messages are those of a real secure sum with sites that are not there. Returns what
    ``query.json`` holds: ``counters``, which do not leave the site, of each question, and what leaves.

    Raises:
        ConfigError: the query or the site's settings cannot be read, or a column is not as it must be.
        PolicyRefused: the site's policy forbids the query.
        InvalidUpdate, TaskFailed: the records cannot be counted.
    """
    place = SiteHome(home)
    config, policy, query = load(SiteConfig, place.config), load(Policy, place.policy), load(Query, path)
    sums = policy.for_sums()
    num_sites = max(sums.min_sites, sums.min_survivors, query.min_sites)
    require_allowed(policy, query, num_sites, datetime.now().time())
    if config.records is None:
        raise SiteVeto("this site has no records to be asked about", hint="name them in site.toml under [records]")
    counters_K = read_records(config.records, place.path).counted(query)
    numbers = num_records(query, counters_K)
    policy.analytics.require_records(query, numbers)
    rehearsal = _rehearsed(counters_K, query, sums, num_sites)
    words = rehearsal.words.tobytes()
    private_folder(folder)
    write_private(folder / "query.bin", words)
    seen = {
        "query": query.model_dump(mode="json"),
        "counters": [
            {
                "kind": part.question.kind,
                "column": part.question.column,
                "num_records": number,
                "counters": counters_K[part.start : part.stop].tolist(),
            }
            for part, number in zip(query.parts, numbers, strict=True)
        ],
        "words": {"file": "query.bin", "num_bytes": len(words), "holds": words_hold(rehearsal.session)},
        "secure": list(rehearsal.messages),
        "refusal": asdict(Refusal(Work(RUN, 1, Phase.QUERY), TaskFailed.__name__, REASON)),
    }
    write_private(folder / "query.json", json.dumps(seen, indent=2) + "\n")
    return seen


def _rehearsed(counters_K: Integers, query: Query, policy: SumPolicy, num_sites: int) -> Rehearsal:
    colluders = max(policy.colluders(num_sites), query.colluders or 0)
    fields: Mapping[str, Any] = session_fields(query)

    def describe(roster: Roster) -> SessionDescriptor:
        return SessionDescriptor(
            suite=Suite.AES_256_CTR,
            federation=roster.federation,
            run=RUN,
            round=1,
            attempt=1,
            roster_digest=roster.digest,
            participants=tuple(sorted(roster.by_id)),
            degree=0,
            threshold=share_threshold(num_sites, colluders, 0),
            dropouts=0,
            colluders=colluders,
            min_sites=num_sites,
            min_survivors=num_sites,
            deadlines_seconds=(60,) * 5,
            **fields,
        )

    return play(counters_K, None, policy, num_sites, describe)
