"""SIGKILL while a roster is published: signing again ends in the very same roster."""

from __future__ import annotations

import signal
import sys

import pytest
from foedus.errors import FoedusError
from foedus.privacy.secagg.roster import Roster
from foedus.protos.v1 import operations_pb2
from foedus.server.operator import ask
from foedus.server.store import Store
from foedus.simulations.local import LocalFederation

pytestmark = pytest.mark.faults

TASK = """
import numpy as np
from foedus import ArrayTask

task = ArrayTask(
    name="add",
    initial=lambda seed: {"w": np.zeros(3, np.float32)},
    train=lambda arrays, job: (arrays, 10),
    evaluate=lambda arrays: (10, {}),
)
"""
# A server that dies in the transaction, just before or just after it is durable.
DYING = """
import os, signal
from contextlib import contextmanager
from foedus.cli import main
from foedus.server.store import Store

real = Store.transaction

@contextmanager
def transaction(self, name):
    with real(self, name) as db:
        yield db
        if name.startswith("publishing") and {before}:
            os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("publishing"):
        os.kill(os.getpid(), signal.SIGKILL)

Store.transaction = transaction
main()
"""


def published(federation):
    reply = ask(federation.operator, lambda stub: stub.ShowRoster(operations_pb2.ShowRosterRequest()))
    return Roster.from_bytes(reply.signed) if reply.signed else None


@pytest.mark.parametrize("before", [True, False])
def test_killed_while_a_roster_is_published(tmp_path, before):
    (tmp_path / "task.py").write_text(TASK)
    with LocalFederation(tmp_path) as federation:
        federation.start_server([sys.executable, "-c", DYING.format(before=before)])
        homes = [federation.add_site(name, f"{tmp_path / 'task.py'}:task") for name in ("a", "b")]
        with pytest.raises(FoedusError):
            federation.sign_roster()
        assert federation.processes["server"].wait(60) == -signal.SIGKILL
        federation.start_server()
        kept = published(federation)
        assert (kept is None) is before
        assert federation.sign_roster() == 1
        roster = published(federation)
        assert kept in (None, roster)
        for home in homes:
            roster.verify(home.pinned_roster_key(), federation="local", at_least=1)
            assert home.signer().public_key().public_bytes_raw() in roster.public_keys
        # The very bytes once more, as from an operator that heard no answer.
        again = operations_pb2.Roster(version=1, signed=roster.to_bytes())
        assert ask(federation.operator, lambda stub: stub.PublishRoster(again)) == again
        federation.add_site("c", f"{tmp_path / 'task.py'}:task")
        assert federation.sign_roster() == 2
        assert len(published(federation).public_keys) == 3
        store = Store(tmp_path / "server" / "state" / "foedus.db", read_only=True)
        assert len(store.query("SELECT * FROM events WHERE name = 'roster_published'")) == 2
        store.close()
        inside = [path for path in (tmp_path / "server").rglob("*") if path.is_file()]
        secret = federation.roster_key.read_bytes()
        assert not any(secret in path.read_bytes() for path in inside)
