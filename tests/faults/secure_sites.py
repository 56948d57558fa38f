"""Masked runs of real processes: five sites whose mean is known exactly, and runs that no model tells apart."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
from foedus.client_sdk.sum_store import SumStore
from foedus.layout import layout_of
from foedus.modelfile import Model
from foedus.plan import AggregatorPlan, Cohort, SecureAggregation

VALUES = {"a": 0.5, "b": -1.0, "c": 2.0, "d": 0.25, "e": 1.0}
EAGER = Path(__file__).with_name("eager_sites.py")
SCALE = 1024.0
POLL_SECONDS = 0.1


def add_sites(trial, extra=()):
    """Enrol the sites, whose roster is signed; they are not started. The server must be there."""
    for site, value in (*VALUES.items(), *extra):
        trial.add(site, value, start=False)
    trial.fed.sign_roster()


def start_together(trial):
    """All five in one process."""
    homes = [str(trial.folder / site) for site in VALUES]
    trial.spawn("sites", [sys.executable, str(EAGER), *homes])
    connected(trial, *VALUES)


def connected(trial, *sites):
    """Wait until sites are connected, with one call at a time: a caller may make only so many a second."""

    def all_there():
        there = {name for name, site in trial.sites().items() if site.connected}
        return there >= set(sites)

    trial.until(all_there, f"{sites} connected", poll_seconds=POLL_SECONDS)


def secure_plan(trial, *, rounds=1, minimum=5, deadline_seconds=60.0, **fields):
    """A masked run for which five sites are enough."""
    return trial.plan(
        rounds,
        cohort=Cohort(minimum=minimum, quorum=5, deadline_seconds=deadline_seconds),
        protection="masks",
        aggregator=AggregatorPlan(weighting="uniform"),
        secure=SecureAggregation(scale=SCALE),
        **fields,
    )


def initial(start):
    """A model of its own for each run: two sums from one model are refused."""
    arrays = {"w": np.full(4, start, np.float32)}
    return Model.of(layout_of(arrays), arrays)


def mean_of(start, *sites, rounds=1):
    """What so many rounds of these sites make of it, to the last bit."""
    return np.full(4, np.float32(start) + np.float32(rounds) * np.float32(np.mean([VALUES[site] for site in sites])))


def attempts(trial, run):
    """How many attempts each round took."""
    with closing(sqlite3.connect(trial.folder / "server/state/foedus.db")) as db:
        return [row[0] for row in db.execute("SELECT attempt FROM rounds WHERE run = ? ORDER BY number", (run,))]


def phase(trial, run, round=1):
    """How many phases of the latest sum the server has closed; None before it is opened."""
    with closing(sqlite3.connect(trial.folder / "server/state/foedus.db")) as db:
        newest = "SELECT max(attempt) FROM secure_sessions WHERE run = ? AND round = ?"
        attempt = db.execute(newest, (run, round)).fetchone()[0]
        closed = "SELECT count(*) FROM secure_messages WHERE run = ? AND round = ? AND attempt = ? AND message IS NULL"
        return None if attempt is None else db.execute(closed, (run, round, attempt)).fetchone()[0]


def trained(trial):
    """Which site has trained in which round, in order."""
    return sorted(line for line in trial.journal() if "train" in line)


def kept(trial, site, run, round=1):
    """A site's state in a round."""
    store = SumStore.open(trial.folder / site / "sums")
    try:
        return store.find(run, round)
    finally:
        store.close()


def nobody_said_two_things(trial):
    """No message was refused for being a second one that differs from the first."""
    logs = [path.read_text(errors="replace") for path in trial.folder.glob("*.log")]
    assert not any("differs from the first" in log for log in logs)
    assert not any("not the one that was masked before" in log for log in logs)
