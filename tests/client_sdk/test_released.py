"""What a site does when the server says how a piece of work ended."""

from __future__ import annotations

import logging

import pytest
from foedus.client_sdk.desk import Desk
from foedus.client_sdk.home import SiteHome
from foedus.client_sdk.outbox import Outbox, Trained
from foedus.client_sdk.sum_store import SumStore
from foedus.client_sdk.sums import Sums
from foedus.clock import ManualClock
from foedus.protos.messages import Outcome, Phase, Receipt, Release, Work

MODEL = "a" * 64


@pytest.fixture
def box(tmp_path):
    box = Outbox.open(tmp_path / "outbox", ManualClock())
    yield box
    box.close()


@pytest.fixture
def desk(tmp_path, box):
    home = SiteHome(tmp_path)
    store = SumStore.open(home.sums)

    async def unfetched(sha256, num_bytes):
        raise AssertionError("nothing is too long for a session")

    sums = Sums(home, store, lambda message: None, lambda work: None, lambda session: None, unfetched)
    yield Desk("a", home, {}, box, sums, lambda: None, lambda message: None)
    store.close()


def delivered(box, round):
    box.begin("run", round, MODEL, 7)
    box.put("run", round, MODEL, [b"an update"], Trained(layout_sha256="b" * 64, num_examples=1, num_steps=1))
    return box.delivered("run", round, MODEL, Receipt(True)).path


def release(desk, round, outcome, reason="", phase=Phase.TRAIN):
    desk.release(Release(Work("run", round, phase), outcome, reason))


def logged(caplog):
    return [r.fields["outcome"] for r in caplog.records if r.msg == "work_released"]


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.LATE, Outcome.CANCELLED])
def test_it_forgets_the_update_and_says_so_once(desk, box, caplog, outcome):
    paths = [delivered(box, 1), delivered(box, 2)]
    with caplog.at_level(logging.INFO):
        for _ in range(3):  # with every new session the server says it again
            release(desk, 2, outcome, "krum left it out")
    assert not any(path.exists() for path in paths)
    assert box.find("run", 2, MODEL) is None
    assert logged(caplog) == [outcome]


def test_what_counted_is_forgotten_in_silence(desk, box, caplog):
    path = delivered(box, 1)
    with caplog.at_level(logging.INFO):
        release(desk, 1, Outcome.COUNTED)
    assert not path.exists()
    assert logged(caplog) == []
    assert desk.last_rejected == ""


def test_the_last_rejection_can_be_asked_for(desk, box):
    for round in (1, 2):
        delivered(box, round)
        release(desk, round, Outcome.REJECTED, f"reason {round}")
    delivered(box, 3)
    release(desk, 3, Outcome.LATE, "round 3 has closed")
    assert desk.last_rejected == "run run, round 2, train: reason 2"


def test_an_evaluation_that_nobody_waits_for_is_no_news(desk, caplog):
    with caplog.at_level(logging.INFO):
        release(desk, 1, Outcome.CANCELLED, phase=Phase.EVALUATE)
    assert logged(caplog) == []
