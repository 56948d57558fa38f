"""Every group's sum is the plain sum of what its survivors quantised, whoever leaves whenever; a group may be lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from foedus.errors import ConfigError, InvalidUpdate, SecureSumFailed
from foedus.privacy.secagg.collect import Phase, SumCollection
from foedus.privacy.secagg.collect_groups import GroupCollection, collection_of
from foedus.privacy.secagg.descriptor import Mode, next_attempt
from foedus.privacy.secagg.grouping import group_sizes
from foedus.privacy.secagg.opening_groups import add_up_groups, open_groups
from foedus.privacy.secagg.signing import Kind
from foedus.privacy.secagg.stored import restored, stored
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_groups import Groups, grouped, groups, loose, policy, relaxed
from secure_sums import STAGES, federation, local, session

TEN = federation(10)


@pytest.mark.parametrize(
    ("n", "g"), [(2, 2), (3, 2), (5, 2), (7, 3), (8, 4), (11, 5), (13, 3), (21, 4), (34, 8), (64, 16)]
)
def test_sums_of_every_group(n: int, g: int) -> None:
    made = federation(n)
    run = groups(made, loose(made, g), allowed=relaxed())
    run.run()
    found = run.require_exact()
    assert tuple(one.total_weight for one in found.values()) == group_sizes(n, g)
    assert sorted(site for one in found.values() for site in one.survivors) == list(made.ids)
    assert not run.refusals


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("size", [4, 5])
def test_one_leaves_every_group_at_any_stage(stage: Phase, size: int) -> None:
    """Of four of whom none colludes any three answer for the fourth."""
    made = federation(4 * size)
    run = groups(made, loose(made, size), allowed=relaxed())
    leaving = [run.members(place)[place % size] for place in range(4)]
    run.run(dict.fromkeys(leaving, stage))
    found = run.require_exact()
    in_sum = size if stage > Phase.MASKED else size - 1
    assert [one.total_weight for one in found.values()] == [in_sum] * 4
    assert not run.collection.lost


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_drawn_patterns_lose_just_the_groups_that_have_too_few(data: st.DataObject) -> None:
    n, g = data.draw(st.integers(6, 16), label="n"), data.draw(st.integers(2, 6), label="g")
    made = federation(n)
    described = loose(made, g)
    leaving = data.draw(
        st.dictionaries(st.integers(0, n - 1), st.sampled_from(STAGES), max_size=n // 2), label="leaving"
    )
    leaves = {made.ids[place]: stage for place, stage in leaving.items()}
    run = groups(made, described, allowed=relaxed(), seed=n)
    whole = set()
    for place, group in enumerate(run.collection.groups):
        one = group.descriptor
        left = {s: sum(leaves.get(site, Phase.UNMASK + 1) > s for site in one.participants) for s in STAGES}
        t = one.share_threshold(left[Phase.KEYS])
        if (
            left[Phase.SHARES] >= max(one.min_sites, t)
            and left[Phase.MASKED] >= one.needed_survivors
            and left[Phase.ACKS] >= one.needed_acks
            and left[Phase.UNMASK] >= t
        ):
            whole.add(place)
    if not whole:
        with pytest.raises(SecureSumFailed, match="0 of") as caught:  # noqa: PT012 (whichever of the two comes to it)
            run.run(leaves)
            run.result()
        assert caught.value.reason == "too-few"
        return
    run.run(leaves)
    assert set(run.require_exact()) == whole
    lost = open_groups(run.collection).lost
    assert set(lost) == set(range(len(run.collection.groups))) - whole
    assert {refusal.code for refusal in lost.values()} <= {"too-few"}


# a group that is lost


@pytest.mark.parametrize("stage", STAGES)
def test_a_group_that_is_lost_takes_no_other_with_it(stage: Phase) -> None:
    made = federation(20)
    run = groups(made, grouped(made, 5, byzantine=1))
    gone = run.members(2)[:2]  # of five whom one colludes with, four must answer
    run.run(dict.fromkeys(gone, stage))
    assert set(run.require_exact()) == {0, 1, 3}
    assert set(open_groups(run.collection).lost) == {2}
    if stage < Phase.UNMASK:  # and nobody in it has given anything away
        for site in run.members(2):
            assert not [message for message in run.sites[site].sent if message[0] == Kind.UNMASK]


def test_what_a_lost_group_still_says_is_too_late() -> None:
    made = federation(20)
    run = groups(made, grouped(made, 5, byzantine=1))
    run.run({run.members(2)[0]: Phase.KEYS}, until=Phase.SHARES)
    site = run.sites[run.members(2)[1]]
    refusal = run.collection.receive(site.sent[-1])
    assert refusal is not None
    assert refusal.code == "late"
    assert "without group 2: 4 sites have sent keys" in refusal.reason
    assert not run.collection.waiting & set(run.members(2))
    assert not set(run.outbox) & set(run.members(2))


@pytest.mark.parametrize("stage", STAGES)
def test_fewer_groups_than_a_rule_can_use_end_the_round_and_spend_it_only_once_shares_are_out(stage: Phase) -> None:
    """f = 2 needs five groups: with four left nothing is opened, and nothing given away if that is known in time."""
    made = federation(25)
    run = groups(made, grouped(made, 5, byzantine=2))
    leaves = dict.fromkeys(run.members(4)[:2], stage)
    if stage is Phase.UNMASK:
        run.run(leaves)
        with pytest.raises(SecureSumFailed, match="4 of 5 groups are left, expected at least 5; group 4") as caught:
            run.result()
        assert run.collection.revealing
    else:
        with pytest.raises(SecureSumFailed, match="4 of 5 groups are left, expected at least 5; group 4") as caught:
            run.run(leaves)
        assert not run.collection.revealing
        assert not any(message[0] == Kind.UNMASK for site in run.sites.values() for message in site.sent)
    assert caught.value.reason == "too-few"


def test_a_dealer_whose_shares_do_not_open_costs_its_group_and_is_named() -> None:
    made = federation(20)
    run = groups(made, grouped(made, 5, byzantine=1))
    run.offer()
    run.send()
    group = run.collection.groups[1]
    dealer = run.members(1)[0]
    spoilt = group.shares[dealer]
    group.shares[dealer] = replace(
        spoilt, sealed=tuple(replace(item, ciphertext=bytes(len(item.ciphertext))) for item in spoilt.sealed)
    )
    run.send()
    assert not run.collection.waiting & set(run.members(1))  # no more is awaited of them
    run.mask()
    run.send()
    run.send()
    assert set(run.require_exact()) == {0, 2, 3}
    assert (run.collection.lost[1].code, run.collection.lost[1].blamed) == ("bad-dealer", (dealer,))


def test_the_blamed_are_named_where_too_few_groups_are_left() -> None:
    made = federation(5)
    run = groups(made, grouped(made, 5))
    run.offer()
    run.send()
    (group,) = run.collection.groups
    dealer = made.ids[3]
    group.shares[dealer] = replace(
        group.shares[dealer],
        sealed=tuple(replace(item, ciphertext=bytes(82)) for item in group.shares[dealer].sealed),
    )
    run.send()
    with pytest.raises(SecureSumFailed, match="shares do not open") as caught:
        run.send()
    assert caught.value.blamed == (dealer,)


# rounds and attempts


def test_rounds_of_a_run_have_the_same_groups() -> None:
    made = federation(12)
    seen = set()
    group: dict[bytes, tuple[bytes, ...]] = {}
    for number in range(3):
        described = replace(loose(made, 4), round=number)
        run = groups(made, described, allowed=relaxed(), seed=number)
        for site in run.sites.values():
            run.take(site.join(run.collection.offer(), local(described, group=group.get(site.id, ()))))
            group[site.id] = site.state.descriptor.participants
        run.send()
        run.send()
        run.mask()
        run.send()
        run.send()
        run.require_exact()
        seen.add(tuple(map(run.members, range(3))))
    assert len(seen) == 1


@pytest.mark.parametrize("phase", [Phase.KEYS, Phase.SHARES, Phase.MASKED, Phase.ACKS])
def test_another_attempt_at_the_same_groups_goes_through(phase: Phase) -> None:
    """Even after masked updates were sent: the members are the same, so not both attempts can be opened."""
    made = federation(12)
    run = groups(made, loose(made, 4), allowed=relaxed())
    run.run(until=phase)
    second = groups(made, next_attempt(run.described, without=()), sites=list(run.sites.values()))
    second.run()
    assert len(second.require_exact()) == 3


def test_after_the_reveal_there_is_no_other_attempt() -> None:
    made = federation(12)
    run = groups(made, loose(made, 4), allowed=relaxed())
    run.run()
    again = next_attempt(run.described, without=())
    for site in run.sites.values():
        assert site.join(GroupCollection(again, made.roster).offer(), local(again)) is None
        assert site.refusal is not None
        assert site.refusal.code == "already-revealed"


# restarts


def run_to(phase: Phase) -> Groups:
    run = groups(TEN, grouped(TEN, 5))
    run.run(until=phase)
    return run


@pytest.mark.parametrize("phase", STAGES)
def test_a_state_is_read_as_it_was_stored_and_answers_the_same_bytes(phase: Phase) -> None:
    run = run_to(phase)
    for site in run.sites.values():
        assert restored(stored(site.state)) == site.state
        if phase is Phase.KEYS:
            assert site.join(run.collection.offer(), local(run.described)) == site.sent[0]
        elif site.id in run.outbox and phase is not Phase.MASKED:
            assert site.receive(run.outbox[site.id]) == site.sent[-1]


def test_a_masked_update_is_made_again_from_the_seeds_but_never_of_another_update() -> None:
    run = run_to(Phase.MASKED)
    site = run.sites[TEN.ids[0]]
    first = site.mask(run.updates[site.id])
    assert site.words is not None
    words = site.words.copy()
    assert site.mask(run.updates[site.id]) == first
    assert np.array_equal(site.words, words)
    with pytest.raises(InvalidUpdate, match="not the one that was masked before"):
        site.mask(run.updates[site.id] + 1)


@pytest.mark.parametrize("killed_in", STAGES)
def test_a_server_that_stored_messages_and_closes_goes_on_with_the_same_bytes(killed_in: Phase) -> None:
    """With a group lost on the way: it is lost again."""
    made = federation(20)
    run = groups(made, grouped(made, 5, byzantine=1))
    run.run(dict.fromkeys(run.members(0)[:2], Phase.MASKED), until=killed_in)
    again = GroupCollection(run.described, made.roster)
    assert again.offer() == run.collection.offer()
    for phase in STAGES[: STAGES.index(killed_in) + 1]:
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
    assert again.phase is run.collection.phase is killed_in
    assert (again.waiting, again.lost) == (run.collection.waiting, run.collection.lost)
    if killed_in is Phase.UNMASK:
        found = dict(add_up_groups(again, open_groups(again), lambda site: run.rows[site]))
        assert found.keys() == run.require_exact().keys() == {1, 2, 3}
        assert all(np.array_equal(one.sum_D, run.result()[place].sum_D) for place, one in found.items())


# the two kinds of collection


def test_one_interface_for_both() -> None:
    assert isinstance(collection_of(session(TEN), TEN.roster), SumCollection)
    made = collection_of(grouped(TEN, 5), TEN.roster)
    assert isinstance(made, GroupCollection)
    assert made.descriptor.mode is Mode.GROUPS
    assert made.waiting == set(TEN.ids)
    with pytest.raises(ConfigError, match="not in the roster"):
        GroupCollection(grouped(TEN, 5), federation(10, seed=1).roster)


def test_sites_that_keep_to_their_policy_allow_no_weights() -> None:
    """A weight that is a lie would make its group count for more than the rest together."""
    run = groups(TEN, grouped(TEN, 5, weighted=True, scale=16.0), allowed=policy())
    run.offer()
    assert {str(site.refusal and site.refusal.code) for site in run.sites.values()} == {"policy"}
    assert "not weighted" in str(run.sites[TEN.ids[0]].refusal)
