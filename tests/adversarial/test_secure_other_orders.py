"""A server that orders one thing and asks for the update of another: a site gives it to no other order."""

from __future__ import annotations

import dataclasses

import pytest
from foedus.privacy.secagg.signing import Kind
from foedus.protos.messages import Phase, Receipt
from foedus.server import intake
from foedus.server.assignments import assignment
from foedus.server.coordinators import secure
from foedus.server.intake import Intake
from real_sites import serving
from secure_trial import VALUES, kept, secure_plan, secure_trial

pytestmark = pytest.mark.adversarial


async def test_what_was_trained_for_masks_does_not_leave_without(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    plain: list[str] = []

    def taken(_self, incoming, _failed):
        plain.append(incoming.site)
        return Receipt(True)

    def refused():
        said = [record.fields for record in caplog.records if record.msg == "work_refused"]
        return [fields for fields in said if "the run's protection is none" in fields["reason"]]

    async with secure_trial(tmp_path) as trial:
        await trial.enrol(*VALUES, policy='protections = ["masks"]\n')
        (home,) = await trial.enrol(8.0, names=("eve",))  # sends no update, so that the round stays open
        trial.sign()
        async with serving(trial.local, *trial.homes[:5]):
            eve = await trial.raw(home)
            cohort = {"minimum": 6, "quorum": 6, "deadline_seconds": 600}
            run = await trial.submit(secure_plan(6, cohort=cohort))
            await eve.hear(Kind.DELIVER)
            await trial.until(lambda: list(trial.verdicts(run).values()).count("accepted") == 5, "masked updates")
            fed = trial.local.fed
            order = assignment(fed, fed.runs.find(run), fed.rounds.find(run, 1), Phase.TRAIN)
            monkeypatch.setattr(intake, "decided", lambda part, header: None)
            monkeypatch.setattr(Intake, "_decide", taken)
            fed.sessions.send("site-0", dataclasses.replace(order, protection="none"))
            await trial.until(lambda: refused() or plain, "the site's answer")
    assert plain == []


async def test_an_update_enters_no_sum_about_another_model(tmp_path, monkeypatch):
    honest, other = secure.describe, "ab" * 32

    def lied(order):
        return dataclasses.replace(order, model_sha256=other)

    def describe(plan, round, order, *rest):
        return dataclasses.replace(honest(plan, round, lied(order), *rest), model_digest=bytes.fromhex(other))

    def ask(fed, run, round):
        order = assignment(fed, run, round, Phase.TRAIN)
        for part in fed.participations.in_phase(run.id, round.number, Phase.TRAIN):
            fed.sessions.send(part.site, order)  # what is trained
            fed.sessions.send(part.site, lied(order))  # what the sum is about

    monkeypatch.setattr(secure, "describe", describe)
    monkeypatch.setattr(secure, "_ask", ask)
    async with secure_trial(tmp_path) as trial:
        await trial.enrol(*VALUES)
        trial.sign()
        async with serving(trial.local, *trial.homes):
            run = await trial.submit()
            shown = await trial.local.ended(run)
        states = [kept(home, run) for home in trial.homes]
    assert shown.state == "failed"
    assert not any(state is not None and state.exposures for state in states)


async def test_an_update_enters_no_sum_about_another_training(tmp_path, monkeypatch):
    """The same model with other numbers: every site trains again, as it was told last."""
    honest = secure.describe

    def lied(order):
        return dataclasses.replace(order, training=order.training.model_copy(update={"learning_rate": 0.123}))

    def ask(fed, run, round):
        order = assignment(fed, run, round, Phase.TRAIN)
        for part in fed.participations.in_phase(run.id, round.number, Phase.TRAIN):
            fed.sessions.send(part.site, order)
            fed.sessions.send(part.site, lied(order))

    monkeypatch.setattr(secure, "describe", lambda plan, round, order, *rest: honest(plan, round, lied(order), *rest))
    monkeypatch.setattr(secure, "_ask", ask)
    async with secure_trial(tmp_path) as trial:
        await trial.enrol(*VALUES)
        trial.sign()
        async with serving(trial.local, *trial.homes):
            run = await trial.submit()
            assert (await trial.local.ended(run)).state == "finished"
        trained = [(home.path / "trained").read_text().split() for home in trial.homes]
    assert all(1 <= len(rounds) <= 2 for rounds in trained)
