"""The session of a query: what every site works out again, for federations of every size."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.privacy.analytics.query import Query
from foedus.privacy.analytics.sessions import require_session
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.roster import signed_roster
from foedus.privacy.secagg.signing import site_id
from foedus.protos.messages import Phase, Work
from foedus.server.query_descriptor import describe_query, fewest_sites

WORK = Work("q1", 1, Phase.QUERY)
NOISE = {"multiplier": 4.0}


def query(**fields):
    question = {"kind": "mean", "column": "age", "low": 0, "high": 120}
    return Query.model_validate({"name": "q", "question": question} | fields)


def described(asked, num_sites, attempt=1):
    keys = [bytes([place >> 8, place & 255]) + bytes(30) for place in range(num_sites)]
    roster = signed_roster(Ed25519PrivateKey.generate(), "hearts", 1, tuple(sorted(keys)))
    return describe_query(asked, WORK, attempt, roster, tuple(map(site_id, keys)))


@pytest.mark.parametrize("noise", [None, NOISE])
@pytest.mark.parametrize("num_sites", [5, 6, 10, 11, 20, 257, 300])
def test_every_site_accepts_it(num_sites, noise):
    asked = query(noise=noise)
    session = described(asked, num_sites)
    SumPolicy().require(session)
    require_session(asked, session)
    assert session.needed_survivors == fewest_sites(asked, num_sites)
    assert (session.run, session.round, session.attempt) == ("q1", 1, 1)
    assert (session.degree > 0) == (num_sites > 256)


def test_what_the_query_says_of_sites_is_kept_to():
    asked = query(min_sites=8, colluders=3, deadline_seconds=2.5)
    session = described(asked, 10, attempt=2)
    assert (session.min_sites, session.colluders, session.attempt) == (8, 3, 2)
    assert session.deadlines_seconds == (3,) * 5
    assert fewest_sites(asked, 10) == 8
    assert fewest_sites(query(min_sites=3, colluders=4), 10) == 7
    assert fewest_sites(query(min_sites=3), 30) == 15
