"""Killed at any point: the same bytes again, or nothing; attempts at one round of which at most one can be opened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from foedus.errors import InvalidUpdate
from foedus.privacy.secagg.codes import AbortCode, Refusal
from foedus.privacy.secagg.collect import Phase, SumCollection
from foedus.privacy.secagg.descriptor import next_attempt
from foedus.privacy.secagg.opening import add_up, open_sum
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.site import receive
from foedus.privacy.secagg.state import Stage
from foedus.privacy.secagg.stored import restored, stored
from foedus.privacy.secagg.thresholds import majority
from secure_sums import STAGES, Server, federation, local, server, session

TEN = federation(10)
BECAUSE = Refusal(AbortCode.POLICY, "because", (b"a" * 16,))


def run_to(phase: Phase) -> Server:
    run = server(TEN, session(TEN, num_coordinates=6))
    run.offer()
    for step, act in (
        (Phase.SHARES, run.send),
        (Phase.MASKED, run.send),
        (Phase.ACKS, lambda: (run.mask(), run.send())),
        (Phase.UNMASK, run.send),
    ):
        if phase >= step:
            act()
    return run


@pytest.mark.parametrize("phase", STAGES)
def test_a_state_is_read_as_it_was_stored(phase: Phase) -> None:
    for site in run_to(phase).sites.values():
        assert restored(stored(site.state)) == site.state
        assert restored(stored(site.state.ended(BECAUSE))).stage is Stage.ENDED


@pytest.mark.parametrize("phase", STAGES)
def test_a_site_whose_round_is_over_answers_nothing(phase: Phase) -> None:
    """Neither what it has answered before, nor what would come next."""
    run = run_to(phase)
    site = run.sites[TEN.ids[0]]
    if phase is Phase.MASKED:
        run.mask()
    state = site.state.remembered()
    coming = [] if phase is Phase.UNMASK else [run.collection.close()[site.id]]
    for message in (*coming, *([run.outbox[site.id]] if run.outbox else [])):
        step = receive(state, message, site.member)
        assert (step.state, step.reply) == (state, None)
        assert step.refusal is not None


@pytest.mark.parametrize("phase", STAGES)
def test_every_message_repeated_gets_the_very_same_bytes(phase: Phase) -> None:
    """Killed after the state was stored and before the answer left, or before the server had it."""
    run = run_to(Phase.KEYS)
    site = run.sites[TEN.ids[0]]
    seen = [(run.collection.offer(), site.sent[-1])]
    for at in STAGES[1:]:
        if at > phase:
            break
        if at is Phase.ACKS:
            run.mask()
        run.send()
        if run.outbox[site.id] != seen[-1][0]:
            reply = site.sent[-1] if at is not Phase.MASKED else None
            seen.append((run.outbox[site.id], reply))
    for message, reply in seen:
        before = site.state
        again = site.join(message, local(run.described)) if message == seen[0][0] else site.receive(message)
        assert again == reply
        assert site.state == before


def test_a_masked_update_is_made_again_from_the_seeds_but_never_of_another_update() -> None:
    run = run_to(Phase.MASKED)
    site = run.sites[TEN.ids[0]]
    update_D = run.updates[site.id]
    first = site.mask(update_D)
    assert site.words is not None
    words = site.words.copy()
    assert site.mask(update_D) == first
    assert np.array_equal(site.words, words)
    other_D = update_D.copy()
    other_D[0] += 1
    with pytest.raises(InvalidUpdate, match="not the one that was masked before"):
        site.mask(other_D)
    assert site.mask(update_D) == first


def test_killed_before_the_state_was_stored_a_site_may_answer_afresh() -> None:
    """Nothing had left, so the fresh answer is the only one; with the stored state of before, the run goes on."""
    run = run_to(Phase.SHARES)
    site = run.sites[TEN.ids[0]]
    before = site.stored
    messages = run.collection.close()
    lost = site.receive(messages[site.id])
    site.stored = before
    assert site.receive(messages[site.id]) == lost  # no dealer is bad, so neither holds anything
    assert restored(before).stage is Stage.SHARES_SENT


def test_an_erased_site_has_nothing_to_give() -> None:
    run = run_to(Phase.ACKS)
    state = run.sites[TEN.ids[0]].state
    assert not any((state.seal_key, state.mask_key, state.seed, state.rounding))
    assert state.held
    run.send()
    assert not run.sites[TEN.ids[0]].state.held


@pytest.mark.parametrize("killed_in", STAGES)
def test_a_server_that_stored_messages_and_closes_goes_on_with_the_same_bytes(killed_in: Phase) -> None:
    run = run_to(killed_in)
    again = SumCollection(run.described, TEN.roster)
    assert again.offer() == run.collection.offer()
    for phase in STAGES:
        for site in run.sites.values():
            for message in site.sent:
                if message[0] == phase:
                    row = run.rows.get(site.id)
                    digest = site.state.masked_digest if row is not None else None
                    again.receive(message, words_digest=digest, num_bytes=row.nbytes if row is not None else 0)
        if phase < killed_in:
            outbox = again.close()
    if killed_in > Phase.KEYS:
        assert outbox == run.outbox
    assert again.phase == run.collection.phase
    assert again.waiting == run.collection.waiting
    if killed_in is Phase.UNMASK:
        rows = [(site, run.rows[site]) for site in again.masked]
        found = add_up(run.described, open_sum(again), rows)
        assert np.array_equal(found.sum_D, run.require_exact().sum_D)


# attempts


def second_attempt(run: Server, without: int) -> Server:
    """The next attempt, without the first so many sites, with the sites' states of the first."""
    again = next_attempt(run.described, without=TEN.ids[:without])
    return server(TEN, again, sites=list(run.sites.values()))


@pytest.mark.parametrize("phase", [Phase.KEYS, Phase.SHARES, Phase.MASKED, Phase.ACKS])
def test_an_attempt_given_up_before_the_reveal_is_followed_by_one_with_fresh_keys(phase: Phase) -> None:
    run = run_to(phase)
    before = {site.id: site.sent[0] for site in run.sites.values()}
    second = second_attempt(run, 1)
    second.run()
    assert len(second.require_exact().survivors) == 9
    for site in list(run.sites.values())[1:]:
        fresh = [message for message in site.sent if message[0] == Phase.KEYS]
        assert len(fresh) == 2
        assert fresh[0] == before[site.id]
        assert fresh[1][53:149] != fresh[0][53:149]


def test_an_attempt_that_both_could_be_opened_with_is_refused_once_an_update_was_masked() -> None:
    """With four sites gone, three that reveal first and three that reveal second would be enough for two sums."""
    loose = {"min_sites": 5, "min_survivors": 5}
    run = server(TEN, session(TEN, num_coordinates=6, **loose))
    run.offer()
    run.send()
    run.send()
    run.mask()
    run.send()
    assert majority(10, 2) + majority(6, 2) <= 10 + 2
    second = second_attempt(run, 4)
    second.offer()
    for site, message in second.collection.close().items():
        assert run.sites[site].receive(message) is None
        refusal = run.sites[site].refusal
        assert refusal is not None
        assert refusal.code == "policy"
        assert "both could be opened" in refusal.reason
    # Had nothing been masked in the first attempt, the second would do no harm.
    fresh = server(TEN, session(TEN, num_coordinates=6, **loose))
    fresh.offer()
    second = second_attempt(fresh, 4)
    second.run()
    assert len(second.require_exact().survivors) == 6


def test_attempts_do_not_go_backwards() -> None:
    run = run_to(Phase.KEYS)
    site = run.sites[TEN.ids[0]]
    later = replace(run.described, attempt=3)
    assert site.join(SumCollection(later, TEN.roster).offer(), local(later)) is not None
    for attempt in (2, 3):
        stale = replace(run.described, attempt=attempt, deadlines_seconds=(1, 1, 1, 1, 1))
        assert site.join(SumCollection(stale, TEN.roster).offer(), local(stale)) is None
        assert site.refusal is not None
        assert "is not after attempt 3" in site.refusal.reason


def test_a_state_of_another_round_is_a_bug_of_the_caller() -> None:
    run = run_to(Phase.KEYS)
    other = replace(run.described, round=4)
    with pytest.raises(ValueError, match="same run and round"):
        run.sites[TEN.ids[0]].join(SumCollection(other, TEN.roster).offer(), local(other))


def test_a_policy_with_fewer_sites_costs_every_loss() -> None:
    """Four sites of whom one may collude: all four must stay."""
    made = federation(4)
    policy = SumPolicy(min_sites=4, min_survivors=4)
    described = session(made, min_sites=4, min_survivors=4)
    run = server(made, described, policy=policy)
    run.run()
    assert len(run.require_exact().survivors) == 4
