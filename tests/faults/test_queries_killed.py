"""SIGKILL in every phase of a query: the same session goes on, to the same answer, with the same noise."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from foedus.errors import FoedusError
from foedus.privacy.analytics.answer import Answers
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import ask, show_query
from query_federation import RECORDS, ages_of, asked, sexes_of

pytestmark = pytest.mark.faults

HERE = Path(__file__).parent
SITES = [f"site-{place}" for place in range(5)]
MESSAGE = "recording a message of"
# Five keys and a close, five shares and a close, and so on: a message and the close of each phase.
MESSAGES = sorted({6 * phase + which for phase in range(5) for which in (2, 5)} - {29})
CASES = [
    ("creating a query", 0),
    ("asking query", 0),
    ("opening a secure sum", 0),
    *((MESSAGE, number) for number in MESSAGES),
    ("settling", 2),
    ("answering query", 0),
    ("forgetting secure sums", 0),
]
EXACT = asked(
    {"kind": "variance", "column": "age", "low": 0, "high": 120},
    {"kind": "histogram", "column": "age", "edges": [0, 50, 100]},
)
NOISY = asked({"kind": "histogram", "column": "age", "edges": [0, 50, 100]}, noise={"multiplier": 20.0})


class Sweep:
    """One federation for all cases; each server dies as ordered once a query is created."""

    def __init__(self, trial):
        self.trial, self.fed = trial, trial.fed
        self.orders = trial.folder / "orders"
        self.orders.mkdir()
        records = trial.folder / "records.py"
        records.write_text(RECORDS)
        self.start_server()
        for place, site in enumerate(SITES):
            trial.add(site, start=False)
            parameters = {"ages": ages_of(place), "sexes": sexes_of(place), "people": []}
            self.fed.open_records(site, f"{records}:records", parameters, policy={"columns": ["age"]})
        self.fed.sign_roster()
        self.start_sites()

    def start_server(self):
        self.fed.start_server([sys.executable, str(HERE / "query_server.py"), str(self.orders)])

    def start_sites(self):
        homes = [str(self.trial.folder / site) for site in SITES]
        self.trial.spawn("sites", [sys.executable, str(HERE / "eager_sites.py"), *homes])
        self.trial.connected(*SITES)

    def queries(self):
        reply = ask(self.fed.operator, lambda stub: stub.ListQueries(operations_pb2.ListQueriesRequest()))
        return [query.id for query in reply.queries]

    def submit(self, query):
        request = operations_pb2.SubmitQueryRequest(query_json=query.model_dump_json())
        return ask(self.fed.operator, lambda stub: stub.SubmitQuery(request)).id

    def killed_once(self, query, *kill, sites_too=False):
        """Ask, lose the server, start it again: the query, ended."""
        before = set(self.queries())
        (self.orders / "kill").write_text(json.dumps(kill))
        with suppress(FoedusError):  # it may die before it answers
            self.submit(query)
        assert self.fed.processes["server"].wait(60) < 0
        if sites_too:
            self.fed.kill("sites")
        self.start_server()
        if sites_too:
            self.start_sites()
        created = set(self.queries()) - before
        assert bool(created) == (kill != ("creating a query", 0, "before"))
        id = created.pop() if created else self.submit(query)
        return self.trial.until(lambda: self.ended(id), f"query {id} ends")

    def ended(self, id):
        shown = ask(self.fed.operator, lambda stub: show_query(stub, id, 30.0))
        return shown if shown.state in ("answered", "failed") else None

    def attempts(self, id):
        with closing(sqlite3.connect(self.trial.folder / "server/state/foedus.db")) as db:
            return db.execute("SELECT attempt FROM queries WHERE id = ?", (id,)).fetchone()[0]

    def left(self, id):
        """Messages that the server still keeps of a query."""
        with closing(sqlite3.connect(self.trial.folder / "server/state/foedus.db")) as db:
            return db.execute("SELECT count(*) FROM secure_messages WHERE run = ?", (id,)).fetchone()[0]

    def told(self, id):
        """Every answer that a server has worked out for a query."""
        return [path.read_text() for path in sorted(self.orders.glob(f"{id}-*"))]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, module_trial):
    return Sweep(module_trial(tmp_path_factory.mktemp("queries")))


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize(("name", "which"), CASES)
def test_the_server_is_killed_around(sweep, name, which, side):
    shown = sweep.killed_once(EXACT, name, which, side)
    assert shown.state == "answered", (shown.reason, shown.sites)
    ages = np.concatenate([ages_of(place) for place in range(5)])
    variance, bins = Answers.from_json(shown.answer_json).answers
    assert variance.estimates[0].value == pytest.approx(ages.var(), rel=1e-12)
    assert [one.value for one in bins.estimates] == [*np.histogram(ages, [0, 50, 100])[0], 0]
    assert {site.verdict for site in shown.sites} == {"accepted"}
    assert sweep.attempts(shown.id) == 1
    assert sweep.left(shown.id) == 0


def test_an_answer_with_noise_is_the_same_when_it_is_worked_out_again(sweep):
    shown = sweep.killed_once(NOISY, "answering query", 0, "before")
    first, second = sweep.told(shown.id)
    assert first == second == shown.answer_json


def test_sites_that_are_killed_as_well_mask_the_same_words_again(sweep):
    """Three of five masked messages are there. Other noise would be other words than were signed, and no answer."""
    shown = sweep.killed_once(NOISY, MESSAGE, 14, "after", sites_too=True)
    assert shown.state == "answered", (shown.reason, shown.sites)
    assert {site.verdict for site in shown.sites} == {"accepted"}
    assert sweep.attempts(shown.id) == 1
