"""Groups under attack: a server with a grouping of its own, and attackers who spoil the groups they are in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import numpy.typing as npt
import pytest
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg import thresholds
from foedus.privacy.secagg.collect import Phase, SumCollection
from foedus.privacy.secagg.collect_groups import GroupCollection
from foedus.privacy.secagg.descriptor import Mode, SessionDescriptor
from foedus.privacy.secagg.groups import group_session, group_sessions, groups_of
from foedus.privacy.secagg.keys import loaded, pair_mask
from foedus.privacy.secagg.messages import Keys, frame, signed_list
from foedus.privacy.secagg.opening import add_up, open_sum
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.signing import Kind, Signed, sign
from foedus.privacy.secagg.state import Stage
from foedus.privacy.secagg.stored import stored
from secure_groups import Groups, grouped, groups, loose, policy, relaxed
from secure_sums import Site, federation, local, server

pytestmark = pytest.mark.adversarial

MADE = federation(25)


def up_to(phase: Phase) -> Groups:
    run = groups(MADE, grouped(MADE, 5, byzantine=2))
    run.run(until=phase)
    return run


def requires(site: Site, message: bytes, code: str, *, ended: bool = True) -> None:
    """The message is refused under that code, nothing is sent, and no secret is left if that ends the session."""
    before, stage = len(site.sent), site.state.stage
    assert site.receive(message) is None
    assert site.refusal is not None
    assert site.refusal.code == code, site.refusal
    assert len(site.sent) == before
    state = site.state
    assert state.stage is (Stage.ENDED if ended else stage)
    if ended:
        assert not any((state.held, state.seal_key, state.mask_key, state.seed, state.rounding, state.answers))


def refused(described: SessionDescriptor, allowed: SumPolicy, group: tuple[bytes, ...] = ()) -> str:
    """The code under which an offer is refused, before any key is sent; empty if it is not."""
    site = MADE.sites(allowed)[0]
    site.join(GroupCollection(described, MADE.roster).offer(), local(described, group=group))
    assert bool(site.sent) is (site.refusal is None)
    return str(site.refusal.code) if site.refusal else ""


# 15: a grouping of the server's own


def key_list(run: Groups, place: int, messages: Sequence[Signed]) -> bytes:
    ordered = sorted(messages, key=lambda message: message.sender)
    return frame(Kind.KEY_LIST, run.collection.groups[place].descriptor.sid, signed_list(ordered))


def test_a_site_of_another_group_in_the_key_list_is_a_bad_grouping() -> None:
    """As it is, with the keys that it has sent for its own group; in place of a member, or beside all of them."""
    for without in (0, 1):
        run = up_to(Phase.KEYS)
        here, there = (list(run.collection.groups[place].keys.values()) for place in (0, 1))
        requires(run.sites[here[-1].sender], key_list(run, 0, [*here[without:], there[0]]), "bad-grouping")


def test_a_colluder_that_joins_a_group_that_it_is_not_in_is_a_bad_grouping() -> None:
    """It signs keys for the group that the server would like to have it in."""
    run = up_to(Phase.KEYS)
    here = list(run.collection.groups[0].keys.values())
    colluder = run.sites[run.members(1)[0]]
    keys = Keys(b"1" * 32, b"2" * 32, b"3" * 32).to_bytes()
    moved = sign(colluder.member.key, Kind.KEYS, run.collection.groups[0].descriptor.sid, keys)
    for without in (0, 1):
        run = up_to(Phase.KEYS)
        requires(run.sites[here[-1].sender], key_list(run, 0, [*here[without:], moved]), "bad-grouping")
        assert all(message[0] == Kind.KEYS for message in run.sites[here[-1].sender].sent)


def test_the_server_does_not_take_a_site_into_another_group_either() -> None:
    run = up_to(Phase.KEYS)
    colluder = run.sites[run.members(1)[0]]
    keys = Keys(b"1" * 32, b"2" * 32, b"3" * 32).to_bytes()
    moved = sign(colluder.member.key, Kind.KEYS, run.collection.groups[0].descriptor.sid, keys)
    refusal = run.collection.receive(moved.to_bytes())
    assert refusal is not None
    assert refusal.code == "not-in-roster"


def test_a_group_of_fewer_than_may_be_gets_no_key_and_no_share() -> None:
    assert refused(grouped(MADE, 4, byzantine=2), policy()) == "bad-grouping"
    assert refused(grouped(MADE, 4, byzantine=2, min_sites=4, min_survivors=4), policy()) == "bad-grouping"
    assert refused(grouped(MADE, 5, min_sites=6, min_survivors=6), policy()) == "bad-grouping"
    run = up_to(Phase.KEYS)
    here = list(run.collection.groups[0].keys.values())
    requires(run.sites[here[0].sender], key_list(run, 0, here[:4]), "too-few")


@pytest.mark.parametrize("size", [0, 1, 26, 2**32 - 1])
def test_sizes_that_cannot_be_are_bad_groupings(size: int) -> None:
    described = replace(grouped(MADE, 5), group_size=size, min_sites=0)
    offer = SumCollection(described, MADE.roster).offer()
    for allowed in (policy(), relaxed(), relaxed(min_sites=0)):
        site = MADE.sites(allowed)[0]
        assert site.join(offer, local(described)) is None
        assert site.refusal is not None
        assert site.refusal.code == "bad-grouping"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threshold": 3}, "threshold is 3, this site works out 4"),
        ({"byzantine": 3}, "3 attackers can outvote 5 groups of 5 from 25 sites"),
        ({"colluders": 0, "threshold": 3}, "withstands 0 colluding sites, this site expects 1 of 25"),
        ({"colluders": 3, "threshold": 5}, "min_sites 5 less 3 colluders is below 3 honest"),
        ({"colluders": 2**32 - 1, "threshold": 5}, "less 4 colluders"),
        ({"min_survivors": 4}, "min_survivors is 4, this site expects 5"),
        ({"regroups": True}, "does not allow groups that change"),
        ({"mode": Mode.SHARES}, "does not allow the protection"),
        ({"scale": 2.0**27}, "a sum of 5 sites can overflow words of 32 bits"),
    ],
)
def test_sessions_against_the_policy_get_no_key(changes: dict[str, object], words: str) -> None:
    described = grouped(MADE, 5, **({"byzantine": 2} | changes))
    site = MADE.sites(policy())[0]
    assert site.join(SumCollection(described, MADE.roster).offer(), local(described)) is None
    assert site.refusal is not None
    assert site.refusal.code == "policy"
    assert words in site.refusal.reason


def test_what_fits_the_words_of_a_group_need_not_fit_those_of_all() -> None:
    """A sum is over a group and no more: 25 sites would overflow where five do not."""
    described = grouped(MADE, 5, byzantine=2, scale=2.0**25)
    assert not described.fits
    assert refused(described, policy()) == ""


# messages of one group in another


@pytest.mark.parametrize("phase", [Phase.SHARES, Phase.MASKED, Phase.ACKS, Phase.UNMASK])
def test_what_a_group_was_sent_means_nothing_in_another(phase: Phase) -> None:
    run = up_to(Phase(phase - 2) if phase is Phase.ACKS else STEP_BEFORE[phase])
    if phase is Phase.ACKS:
        run.mask()
    outbox = run.collection.close()
    here, there = (sorted(site for site in run.members(place)) for place in (0, 1))
    for site, other in zip(here, there, strict=True):
        requires(run.sites[site], outbox[other], "bad-message", ended=False)
        assert run.sites[site].receive(outbox[site]) is not None or phase is Phase.MASKED


STEP_BEFORE = {Phase.SHARES: Phase.KEYS, Phase.MASKED: Phase.SHARES, Phase.UNMASK: Phase.ACKS}


@pytest.mark.parametrize("phase", [Phase.SHARES, Phase.MASKED, Phase.ACKS, Phase.UNMASK])
def test_lists_under_the_right_name_with_messages_of_another_group_are_refused(phase: Phase) -> None:
    """The frame is the group's own; what is in it was signed for another."""
    run = up_to(Phase.KEYS)
    steps = {Phase.MASKED: 1, Phase.ACKS: 2, Phase.UNMASK: 3}.get(phase, 0)
    for step in range(steps):
        if step == 2:
            run.mask()
        run.send()
    if phase is Phase.ACKS:
        run.mask()
    outbox = run.collection.close()
    site, other = run.members(0)[0], run.members(1)[0]
    mixed = outbox[site][:33] + outbox[other][33:]
    code = {Phase.SHARES: "bad-grouping"}.get(phase, "bad-list")
    requires(run.sites[site], mixed, code)


def test_messages_of_a_site_count_in_its_own_group_alone() -> None:
    run = up_to(Phase.SHARES)
    sender = run.sites[run.members(1)[0]]
    refusal = run.collection.groups[0].receive(sender.sent[-1])
    assert refusal is not None
    assert refusal.code == "bad-message"
    refusal = run.collection.receive(b"\x04" + bytes(32) + sender.sent[-1][33:])
    assert refusal is not None
    assert "no group" in refusal.reason
    assert run.collection.receive(b"") is not None


def test_a_group_s_session_cannot_be_offered_by_itself() -> None:
    described = grouped(MADE, 5)
    inner = group_session(described, MADE.ids[0])
    for mode in (Mode.GROUPS, Mode.MASKS):
        alone = replace(inner, mode=mode, rule="mean")
        site = MADE.sites(policy(modes=frozenset(Mode), colluding_percent=4))[0]
        assert site.join(SumCollection(alone, MADE.roster).offer(), local(described)) is None
        assert site.refusal is not None
        assert "another configuration" in site.refusal.reason


def test_masks_are_bound_to_the_group() -> None:
    """The same two sites with the same keys share another mask in every group's session."""
    one, other = MADE.sites(policy())[:2]
    described = grouped(MADE, 5)
    one.join(GroupCollection(described, MADE.roster).offer(), local(described))
    key, public = loaded(one.state.mask_key), b"9" * 32
    masks = {pair_mask(group.sid, key, public, one.id, other.id).reveal_bytes() for group in group_sessions(described)}
    assert len(masks) == 5


# two groupings, two halves


def halves(run: Groups, allowed: SumPolicy) -> list[Groups]:
    """Group 0 cut in two: each half is shown its own keys and the colluder's, who plays along in both."""
    colluder, *honest = run.members(0)
    parts = []
    for half in (honest[:2], honest[2:]):
        sites = [Site(run.sites[site].member, run.sites[site].stored) for site in sorted((colluder, *half))]
        part = groups(MADE, run.described, allowed=allowed, sites=sites)
        for site in sites:
            part.take(run.sites[site.id].sent[0])
        part.send()
        part.send()
        part.mask()
        part.send()
        assert set(part.outbox) == {site.id for site in sites}
        parts.append(part)
    return parts


def split_run() -> tuple[Groups, SumPolicy]:
    allowed = policy(min_sites=3, min_survivors=3, min_honest=2)
    described = grouped(MADE, 5, min_sites=3, min_survivors=3, num_coordinates=6)
    run = groups(MADE, described, allowed=allowed)
    run.offer()
    return run, allowed


def acks_of(part: Groups) -> bytes:
    session = part.collection.groups[0].descriptor
    acks = [sign(site.member.key, Kind.ACK, session.sid, site.state.view) for site in part.sites.values()]
    return frame(Kind.ACK_LIST, session.sid, signed_list(sorted(acks, key=lambda ack: ack.sender)))


def test_a_group_cut_in_two_halves_does_not_give_two_sums() -> None:
    """Four of five must acknowledge one view, not three of the three that the server says are there."""
    for part in halves(*split_run()):
        acks = acks_of(part)
        for site in part.sites.values():
            requires(site, acks, "too-few")


def test_control_with_a_quorum_among_those_with_keys_the_halves_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionDescriptor, "needed_acks", thresholds.majority(3, 1))
    for part in halves(*split_run()):
        part.send()
        (found,) = part.require_exact().values()
        assert found.total_weight == 3


def test_two_groupings_for_two_halves_open_no_group_that_is_in_both() -> None:
    """Another run's name for every other site: a group is opened if all its quorum has one view, or not at all."""
    allowed = policy(min_sites=3, min_survivors=3, min_honest=2)
    first = grouped(MADE, 5, min_sites=3, min_survivors=3, num_coordinates=6)
    shown = {
        site: replace(first, run=name) for name, part in (("spring", 0), ("autumn", 1)) for site in MADE.ids[part::2]
    }
    for described in set(shown.values()):
        sites = [site for site in MADE.sites(allowed) if shown[site.id] == described]
        run = groups(MADE, described, sites=sites)
        for site in sites:
            run.take(site.join(run.collection.offer(), local(described)))
        quorums = {
            place
            for place, members in enumerate(groups_of(described))
            if sum(shown[site] == described for site in members) >= 4
        }
        run.send()
        run.send()
        run.mask()
        run.send()
        if not quorums:
            with pytest.raises(SecureSumFailed, match="0 of 5 groups"):
                run.send()
            continue
        run.send()
        assert set(run.collection.left) == quorums
        for place, members in enumerate(groups_of(described)):
            if place not in quorums:
                assert not [m for s in members if s in run.sites for m in run.sites[s].sent if m[0] == Kind.UNMASK]


# groups that change


def test_a_site_stays_in_its_group_for_a_run() -> None:
    """Others with whom it is summed would give it away; one fewer participant makes other groups."""
    first = grouped(MADE, 5, byzantine=2)
    group = group_session(first, MADE.ids[0]).participants
    assert refused(replace(first, round=4, model_digest=local(first).model_digest), policy(), group) == ""
    fewer = replace(first, round=4, participants=MADE.ids[:24], byzantine=1)
    assert group_session(fewer, MADE.ids[0]).participants != group
    assert refused(fewer, policy(), group) == "bad-grouping"
    assert refused(fewer, policy()) == ""


def test_groups_that_change_need_the_policy_s_leave() -> None:
    changing = grouped(MADE, 5, byzantine=2, regroups=True)
    group = group_session(replace(changing, round=2), MADE.ids[0]).participants
    assert refused(changing, policy(), group) == "policy"
    assert refused(changing, policy(regrouping=True), group) == ""


def told_apart(regroups: bool) -> tuple[int, float]:
    """Rounds with the same updates: the rank of what the server sees, and how far off its solution is."""
    made = federation(6)
    rows, sums, updates_ND = [], [], None
    for number in range(12):
        described = replace(loose(made, 3, num_coordinates=3), round=number, regroups=regroups)
        run = groups(made, described, allowed=relaxed(regrouping=True), seed=1)
        run.run()
        for one in run.require_exact().values():
            rows.append([site in one.survivors for site in made.ids])
            sums.append(one.sum_D / one.scale)
        updates_ND = np.array([run.updates[site] for site in made.ids])
    seen = np.array(rows, float)
    solved_ND, *_ = np.linalg.lstsq(seen, np.array(sums), rcond=None)
    return int(np.linalg.matrix_rank(seen)), float(np.abs(solved_ND - updates_ND).max())


def test_fixed_groups_stay_as_many_equations_as_groups() -> None:
    rank, error = told_apart(regroups=False)
    assert rank == 2
    assert error > 0.1


def test_control_with_groups_that_change_the_server_solves_for_every_update() -> None:
    """What the policy's leave costs, where updates stay alike from round to round."""
    rank, error = told_apart(regroups=True)
    assert rank == 6
    assert error < 0.01


# colluders that a server brings together


def ground(described: SessionDescriptor, victim: bytes, colluders: Sequence[bytes]) -> SessionDescriptor:
    """The first run's name with which all colluders are in the victim's group."""
    for number in count():
        tried = replace(described, run=f"run {number}")
        if set(group_session(tried, victim).participants) == {victim, *colluders}:
            return tried
    raise AssertionError


SMALL = federation(8)


def described_small(colluders: int) -> SessionDescriptor:
    return grouped(SMALL, 4, colluders=colluders, min_sites=4, min_survivors=4, num_coordinates=5)


def test_colluders_that_may_meet_in_a_group_are_counted_as_if_they_did() -> None:
    described = described_small(3)
    site = SMALL.sites(policy(min_sites=4, min_survivors=4, colluding_percent_in_groups=30))[0]
    assert site.join(GroupCollection(described, SMALL.roster).offer(), local(described)) is None
    assert "less 3 colluders is below 3 honest" in str(site.refusal)


def test_control_counted_by_their_share_of_the_sites_they_learn_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of eight are one or two of four on average; the server tries names until all three are with the victim."""
    for module in ("groups", "grouping"):
        monkeypatch.setattr(f"foedus.privacy.secagg.{module}.colluders_in_group", lambda *_: 1)
    victim, *colluders = SMALL.ids[:4]
    described = ground(described_small(3), victim, colluders)
    allowed = policy(min_sites=4, min_survivors=4, colluding_percent_in_groups=30)
    run = groups(SMALL, described, allowed=allowed)
    run.run()
    (place,) = (place for place, one in run.require_exact().items() if victim in one.survivors)
    found_D = run.result()[place].sum_D.astype(np.int64)
    for site in colluders:
        found_D = found_D - run.plain[site].view(np.int32)
    assert np.array_equal(found_D, run.plain[victim].view(np.int32))


# 15: attackers in groups


def poisoned(run: Groups, attackers: Sequence[bytes], value: int) -> None:
    """All sites mask; attackers add to their masked words whatever they like, and sign that."""
    for site in run.described.participants:
        if site not in attackers:
            run.upload(run.sites[site])
    for attacker in (run.sites[site] for site in attackers):
        attacker.mask(run.updates[attacker.id])
        assert attacker.words is not None
        words = attacker.words + np.uint32(value % 2**32)
        digest = hashlib.sha256(words.data).digest()
        state = attacker.state
        masked = sign(attacker.member.key, Kind.MASKED, state.descriptor.sid, digest)
        attacker.stored = stored(replace(state, masked=masked, masked_digest=digest))
        assert run.collection.receive(masked.to_bytes(), words_digest=digest, num_bytes=words.nbytes) is None
        run.rows[attacker.id] = words


def group_means(attackers: Sequence[bytes], value: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The means of all groups, and those of the groups without an attacker."""
    run = up_to(Phase.MASKED)
    poisoned(run, attackers, value)
    run.send()
    run.send()
    found = run.result()
    assert set(found) == set(range(5))
    means_GD = np.array([one.mean_D() for one in found.values()], np.float64)
    good = [place for place, one in found.items() if not set(one.survivors) & set(attackers)]
    return means_GD, means_GD[good]


def in_different_groups(number: int) -> list[bytes]:
    return [members[0] for members in groups_of(grouped(MADE, 5))[:number]]


def within(value_D: npt.NDArray[np.float64], range_GD: npt.NDArray[np.float64]) -> bool:
    return bool(np.all((range_GD.min(axis=0) <= value_D) & (value_D <= range_GD.max(axis=0))))


@pytest.mark.parametrize("value", [2**30, -(2**30), 5000])
def test_two_attackers_do_not_move_the_median_out_of_the_honest_groups_range(value: int) -> None:
    """Wherever they are: in two groups, or together in one."""
    for attackers in (in_different_groups(2), list(groups_of(grouped(MADE, 5))[0][:2])):
        means_GD, good_GD = group_means(attackers, value)
        assert len(good_GD) >= 3
        assert within(np.median(means_GD, axis=0), good_GD)


def test_control_the_mean_is_moved_and_three_attackers_move_the_median() -> None:
    means_GD, good_GD = group_means(in_different_groups(2), 2**30)
    assert not within(means_GD.mean(axis=0), good_GD)
    means_GD, good_GD = group_means(in_different_groups(3), 2**30)
    assert not within(np.median(means_GD, axis=0), good_GD)


def test_a_lying_holder_spoils_no_more_than_its_own_group() -> None:
    """A wrong share, with none to spare for finding it: that group has no sum, and the others have."""
    run = up_to(Phase.ACKS)
    liar, silent = run.members(3)[:2]
    run.outbox = run.collection.close()
    for site, message in run.outbox.items():
        if site == silent:
            continue
        reply = run.sites[site].receive(message)
        assert reply is not None
        if site == liar:
            body = bytearray(Signed.from_bytes(reply).body)
            body[-1] ^= 1
            reply = sign(run.sites[site].member.key, Kind.UNMASK, reply[1:33], bytes(body)).to_bytes()
        run.take(reply)
    assert run.refusals == []
    described = replace(run.described, byzantine=1)  # of whom the rule fears fewer, and four groups are enough
    run.collection.descriptor = described
    assert set(run.require_exact()) == {0, 1, 2, 4}


def test_one_group_alone_is_a_sum_of_masks() -> None:
    """The machine is the same: a group's collection with a group's sites, by hand."""
    run = up_to(Phase.UNMASK)
    group = run.collection.groups[2]
    rows = [(site, run.rows[site]) for site in group.masked]
    alone = add_up(group.descriptor, open_sum(group), rows)
    assert np.array_equal(alone.sum_D, run.result()[2].sum_D)
    assert server(MADE, group.descriptor).collection.waiting == set(group.descriptor.participants)
