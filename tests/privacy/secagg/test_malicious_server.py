"""A server that lies: no honest site gives away a share, and the attack works where the defence is taken out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg import descriptor as descriptor_module
from foedus.privacy.secagg import graph, thresholds
from foedus.privacy.secagg.checks import view_digest
from foedus.privacy.secagg.collect import Phase, SumCollection
from foedus.privacy.secagg.descriptor import SessionDescriptor
from foedus.privacy.secagg.keys import loaded, pair_mask, self_mask
from foedus.privacy.secagg.messages import Deliver, Keys, Offer, Unmask, Which, frame, signed_list
from foedus.privacy.secagg.opening import open_sum
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Ring, fold
from foedus.privacy.secagg.roster import signed_roster
from foedus.privacy.secagg.shamir import combine
from foedus.privacy.secagg.signing import Kind, Signed, sign
from foedus.privacy.secagg.state import Stage
from foedus.privacy.secrets import Secret
from secure_sums import FEDERATION, Server, Site, federation, local, public, server, session

pytestmark = pytest.mark.adversarial

TEN = federation(10)


def up_to(phase: Phase, made: Any = TEN, described: SessionDescriptor | None = None, **settings: Any) -> Server:
    """An honest run that has reached a phase."""
    run = server(made, described or session(made, num_coordinates=20), **settings)
    run.offer()
    if phase >= Phase.SHARES:
        run.send()
    if phase >= Phase.MASKED:
        run.send()
    if phase >= Phase.ACKS:
        run.mask()
        run.send()
    if phase >= Phase.UNMASK:
        run.send()
    return run


def revealed(site: Site) -> list[bytes]:
    return [message for message in site.sent if message[0] == Kind.UNMASK]


def requires(site: Site, message: bytes, code: str, *, ended: bool = True) -> None:
    """The message is refused under that code, nothing is revealed, and no secret is left."""
    before = len(site.sent)
    assert site.receive(message) is None
    assert site.refusal is not None
    assert site.refusal.code == code, site.refusal
    assert len(site.sent) == before
    state = site.state
    if ended:
        assert state.stage is Stage.ENDED
        assert not any((state.held, state.seal_key, state.mask_key, state.seed, state.rounding, state.answers))


def survivors_message(run: Server, sites: Sequence[bytes]) -> bytes:
    masked = [run.collection.masked[site] for site in sorted(sites)]
    return frame(Kind.SURVIVORS, run.described.sid, signed_list(masked))


def view(run: Server, sites: Sequence[bytes]) -> bytes:
    masked = [run.collection.masked[site] for site in sorted(sites)]
    keys = list(run.collection.keys.values())
    return view_digest(run.described.sid, keys, sorted(run.collection.shares), masked)


def ack_list(run: Server, digest: bytes, sites: Sequence[Site]) -> bytes:
    """Acks signed by these sites' own keys, as colluders would sign anything."""
    acks = [
        sign(site.member.key, Kind.ACK, run.described.sid, digest) for site in sorted(sites, key=lambda one: one.id)
    ]
    return frame(Kind.ACK_LIST, run.described.sid, signed_list(acks))


# 1: both secrets of one site


def test_no_site_gives_two_shares_of_one_dealer() -> None:
    run = up_to(Phase.UNMASK)
    for site in run.sites.values():
        (message,) = revealed(site)
        shares = Unmask.from_bytes(Signed.from_bytes(message).body).shares
        owners = [item.owner for item in shares]
        assert owners == sorted(set(owners)) == sorted(run.collection.shares)
        assert {item.which for item in shares} == {Which.SEED}


@pytest.mark.parametrize("dropped", [0, 5, 9])
def test_a_second_request_is_refused_whatever_it_asks(dropped: int) -> None:
    run = up_to(Phase.UNMASK)
    others = [site for site in TEN.ids if site != TEN.ids[dropped]]
    for site in run.sites.values():
        before = site.sent[-1]
        fewer = ack_list(run, site.state.view, list(run.sites.values())[1:])
        for request in (
            survivors_message(run, others),
            fewer,
            ack_list(run, view(run, others), list(run.sites.values())),
        ):
            requires(site, request, "already-revealed", ended=False)
        assert site.receive(run.outbox[site.id]) == before  # the very same request has the very same answer
        assert len(set(revealed(site))) == 1


def test_a_second_session_of_the_round_is_refused_after_the_reveal() -> None:
    run = up_to(Phase.UNMASK)
    again = replace(run.described, attempt=2)
    for site in run.sites.values():
        assert site.join(SumCollection(again, TEN.roster).offer(), local(again)) is None
        assert site.refusal is not None
        assert site.refusal.code == "already-revealed"
        requires(site, frame(Kind.ACK_LIST, again.sid, b"\0\0\0\0"), "bad-message", ended=False)


# 2: two lists of survivors for two halves

COLLUDERS, VICTIM = TEN.ids[:2], TEN.ids[2]


def split(run: Server) -> tuple[list[Site], list[Site], list[Site], bytes, bytes]:
    """The colluders, the half that is shown everybody, the half that is shown all but the victim; and the views."""
    honest = [run.sites[site] for site in TEN.ids if site not in COLLUDERS]
    everybody, without = list(TEN.ids), [site for site in TEN.ids if site != VICTIM]
    run.mask()
    assert set(run.collection.masked) == set(TEN.ids)
    for half, shown in ((honest[:4], everybody), (honest[4:], without)):
        for site in half:
            site.receive(survivors_message(run, shown))
    return [run.sites[site] for site in COLLUDERS], honest[:4], honest[4:], view(run, everybody), view(run, without)


def shares_of_victim(sites: Sequence[Site], which: Which) -> dict[int, Secret]:
    found = {}
    for site in sites:
        for message in revealed(site):
            for item in Unmask.from_bytes(Signed.from_bytes(message).body).shares:
                if item.owner == VICTIM and item.which is which:
                    found[TEN.ids.index(site.id) + 1] = item.share
    return found


def test_two_lists_of_survivors_are_acknowledged_by_too_few_each() -> None:
    run = up_to(Phase.MASKED)
    colluders, one, other, first, second = split(run)
    for half, digest in ((one, first), (other, second)):
        for site in half:
            requires(site, ack_list(run, digest, [*colluders, *half]), "too-few")
            assert not revealed(site)


def test_acks_of_the_other_list_do_not_make_up_the_number() -> None:
    run = up_to(Phase.MASKED)
    colluders, one, other, first, second = split(run)
    mixed = [sign(site.member.key, Kind.ACK, run.described.sid, first) for site in [*colluders, *one]]
    mixed += [sign(site.member.key, Kind.ACK, run.described.sid, second) for site in other]
    mixed.sort(key=lambda ack: ack.sender)
    requires(one[0], frame(Kind.ACK_LIST, run.described.sid, signed_list(mixed)), "bad-list")


def test_control_with_a_threshold_of_half_the_server_learns_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """t = t_ack = (m + c)/2 instead of one more: the same messages give both secrets of the victim, and its update."""
    for module in (thresholds, descriptor_module):
        monkeypatch.setattr(module, "majority", lambda n, c: (n + c) // 2)
    run = up_to(Phase.MASKED, described=session(TEN, num_coordinates=20, threshold=6))
    victim_state = run.sites[VICTIM].state
    colluders, one, other, first, second = split(run)
    held = {TEN.ids.index(site.id) + 1: site.state.held for site in colluders}
    for half, digest in ((one, first), (other, second)):
        for site in half:
            assert site.receive(ack_list(run, digest, [*colluders, *half])) is not None
    seeds = shares_of_victim(one, Which.SEED)
    mask_keys = shares_of_victim(other, Which.MASK_KEY)
    for x, items in held.items():
        (mine,) = [item for item in items if item.owner == VICTIM]
        seeds[x], mask_keys[x] = mine.seed_share, mine.mask_share
    seed, mask_key = combine(seeds), combine(mask_keys)
    assert seed == victim_state.seed
    assert mask_key == victim_state.mask_key
    assert mask_key is not None
    assert seed is not None
    words, sid = run.rows[VICTIM].copy(), run.described.sid
    bodies = {site: Keys.from_bytes(message.body) for site, message in run.collection.keys.items()}
    pairs = {
        site: pair_mask(sid, loaded(mask_key), keys.mask_key, VICTIM, site)
        for site, keys in bodies.items()
        if site != VICTIM
    }
    added = [seed for site, seed in pairs.items() if site > VICTIM]
    fold(words, subtract=[self_mask(sid, seed, VICTIM), *added], add=[pairs[site] for site in pairs if site < VICTIM])
    assert np.array_equal(words, run.plain[VICTIM])


# 2b: the ring of neighbours


def ring(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(graph, "COMPLETE_UP_TO", 16)
    made = federation(30)
    described = session(made, colluders=1, degree=10, min_survivors=15, num_coordinates=3)
    return up_to(Phase.MASKED, made, described, policy=SumPolicy(colluding_percent=3))


def arcs(run: Server) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Six sites in a row, the k/2 = 5 on either side of them, and the rest."""
    order = list(run.collection.graph.order)
    return order[5:11], order[:5] + order[11:16], order[16:]


def check_distant_arcs(run: Server, arc: list[bytes], rest: list[bytes]) -> None:
    run.mask()
    members = sorted(run.collection.masked)
    lists = [[site for site in members if site != rest[0]], [site for site in members if site != rest[-1]]]
    for shown, part in ((lists[0], arc), (lists[1], rest[1:-1])):
        for site in part:
            assert run.sites[site].receive(survivors_message(run, shown)) is not None
    half = rest[1 : run.described.needed_acks // 2]
    for shown, part in ((lists[0], arc), (lists[1], half)):
        acks = ack_list(run, view(run, shown), [run.sites[site] for site in part])
        for site in part:
            requires(run.sites[site], acks, "too-few")


def check_cut_arc(run: Server, arc: list[bytes], gap: list[bytes]) -> None:
    """Within the arc, every site keeps at most k/2 + 1 holders: fewer than t."""
    run.mask(gap)
    run.send()
    run.send()
    with pytest.raises(SecureSumFailed) as caught:
        open_sum(run.collection)
    assert caught.value.reason == "too-few"
    end = arc[0]
    holders = set(run.collection.graph.holders(end)) & set(run.collection.unmask)
    assert len(holders) < run.collection.threshold


def test_lists_for_two_distant_arcs_are_acknowledged_by_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ring(monkeypatch)
    arc, _, rest = arcs(run)
    check_distant_arcs(run, arc, rest)


def test_an_arc_cannot_be_cut_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ring(monkeypatch)
    arc, gap, _ = arcs(run)
    check_cut_arc(run, arc, gap)


def test_control_with_a_lower_threshold_the_arc_is_cut_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """t = k/2 + 1: those left beside the gap answer for each other, and the sum comes out."""
    for module in (thresholds, descriptor_module):
        monkeypatch.setattr(module, "share_threshold", lambda *_: 6)
    monkeypatch.setattr("foedus.privacy.secagg.policy.share_threshold", lambda *_: 6)
    monkeypatch.setattr(graph, "COMPLETE_UP_TO", 16)
    made = federation(30)
    described = session(made, colluders=1, degree=10, min_survivors=15, num_coordinates=3, threshold=6)
    run = up_to(Phase.MASKED, made, described, policy=SumPolicy(colluding_percent=3))
    _, gap, _ = arcs(run)
    run.mask(gap)
    run.send()
    run.send()
    run.require_exact()


@pytest.mark.slow
def test_three_hundred_sites_on_a_ring() -> None:
    made = federation(300)
    colluders = 6
    degree = thresholds.ring_degree(300, colluders, 10)
    described = session(made, colluders=colluders, degree=degree, min_survivors=150, num_coordinates=2)
    run = up_to(Phase.MASKED, made, described, policy=SumPolicy(colluding_percent=2))
    order = list(run.collection.graph.order)
    half = degree // 2
    arc, gap = order[half : half + 6], order[:half] + order[half + 6 : 2 * half + 6]
    check_cut_arc(run, arc, gap)


def test_a_site_that_the_list_leaves_out_erases_and_says_no_more() -> None:
    run = up_to(Phase.MASKED)
    run.mask()
    victim = run.sites[VICTIM]
    without = [site for site in TEN.ids if site != VICTIM]
    requires(victim, survivors_message(run, without), "late")
    requires(victim, ack_list(run, view(run, without), list(run.sites.values())), "late")


# 3, 4: keys


def key_list(run: Server, messages: Sequence[Signed]) -> bytes:
    return frame(Kind.KEY_LIST, run.described.sid, signed_list(messages))


def swapped(run: Server) -> list[Signed]:
    mine = run.collection.keys[TEN.ids[4]]
    body = Keys.from_bytes(mine.body)
    forged = replace(mine, body=replace(body, mask_key=body.seal_key).to_bytes())
    return [forged if message is mine else message for message in run.collection.keys.values()]


def invented(run: Server) -> list[Signed]:
    stranger = sign(Ed25519PrivateKey.generate(), Kind.KEYS, run.described.sid, run.collection.keys[TEN.ids[4]].body)
    return sorted([*run.collection.keys.values(), stranger], key=lambda message: message.sender)


def twice(run: Server) -> list[Signed]:
    messages = list(run.collection.keys.values())
    return [messages[0], *messages]


def unsorted(run: Server) -> list[Signed]:
    return list(run.collection.keys.values())[::-1]


def without_me(run: Server) -> list[Signed]:
    return list(run.collection.keys.values())[1:]


def other_keys_of_mine(run: Server) -> list[Signed]:
    messages = list(run.collection.keys.values())
    body = Keys(b"1" * 32, b"2" * 32, b"3" * 32).to_bytes()
    return [sign(run.sites[TEN.ids[0]].member.key, Kind.KEYS, run.described.sid, body), *messages[1:]]


def colluder_sends(keys: Callable[[Keys], Keys]) -> Callable[[Server], list[Signed]]:
    """The last site signs keys of its own choice."""

    def made(run: Server) -> list[Signed]:
        messages = list(run.collection.keys.values())
        body = keys(Keys.from_bytes(messages[1].body))
        last = run.sites[TEN.ids[-1]]
        return [*messages[:-1], sign(last.member.key, Kind.KEYS, run.described.sid, body.to_bytes())]

    return made


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        (swapped, "bad-signature"),
        (invented, "not-in-roster"),
        (twice, "bad-list"),
        (unsorted, "bad-list"),
        (without_me, "bad-list"),
        (other_keys_of_mine, "bad-list"),
        (colluder_sends(lambda other: replace(other, commitment=bytes(32))), "bad-key"),
        (colluder_sends(lambda _: Keys(b"9" * 32, b"9" * 32, bytes(32))), "bad-key"),
        (colluder_sends(lambda _: Keys(b"9" * 32, bytes(32), bytes(32))), "bad-key"),
        (colluder_sends(lambda _: Keys(bytes([1, *[0] * 31]), b"9" * 32, bytes(32))), "bad-key"),
        (lambda run: list(run.collection.keys.values())[:4], "too-few"),
    ],
)
def test_bad_key_lists_are_refused_before_a_share_is_sent(
    messages: Callable[[Server], list[Signed]], code: str
) -> None:
    run = up_to(Phase.KEYS)
    run.send(absent=TEN.ids)  # sorts the keys; the honest list goes to nobody
    requires(run.sites[TEN.ids[0]], key_list(run, messages(run)), code)
    assert all(message[0] == Kind.KEYS for message in run.sites[TEN.ids[0]].sent)


def joined(described: SessionDescriptor, made: Any = TEN, *, policy: SumPolicy | None = None, **known: Any) -> Site:
    site = made.sites(policy or SumPolicy())[0]
    roster = known.pop("roster", made.roster)
    offer = Offer(described.to_bytes(), roster.to_bytes())
    site.join(frame(Kind.OFFER, described.sid, offer.to_bytes()), local(described, **known))
    return site


def test_a_roster_with_an_invented_site_is_refused() -> None:
    stranger = federation(1, seed=9)
    forged = signed_roster(
        Ed25519PrivateKey.generate(), FEDERATION, 2, (*TEN.roster.public_keys, public(stranger.keys[0]))
    )
    described = session(TEN, participants=tuple(sorted((*TEN.ids, *stranger.ids))), threshold=7)
    for roster, code in ((forged, "bad-signature"), (TEN.roster, "not-in-roster")):
        site = joined(replace(described, roster_digest=roster.digest), roster=roster)
        assert (site.refusal is not None and site.refusal.code) == code
        assert not site.sent


def test_a_session_without_me_is_refused() -> None:
    described = session(TEN, participants=TEN.ids[1:], threshold=thresholds.majority(9, 2))
    site = joined(described)
    assert site.refusal is not None
    assert site.refusal.code == "bad-list"


# 5: parameters


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threshold": 6}, "threshold is 6, this site works out 7"),
        ({"threshold": 8}, "threshold is 8"),
        ({"colluders": 1, "threshold": 6}, "withstands 1 colluding"),
        ({"min_sites": 4}, "min_sites is 4"),
        ({"min_sites": 11}, "10 sites take part"),
        ({"colluders": 3, "threshold": 7, "min_sites": 5}, "below 3 honest"),
        ({"min_survivors": 4}, "min_survivors is 4, this site expects 5"),
        ({"ring": Ring.W16}, "overflow words of 16 bits"),
        ({"weighted": True, "scale": 1e6}, "overflow words of 32 bits"),
        ({"rule": "multi-krum"}, "'multi-krum' needs more"),
        ({"clip_norm": 1e-9}, "clip norm 1e-09 is outside"),
        ({"scale": 0.5}, "scale 0.5 is outside"),
        ({"federation": "lungs"}, "another federation"),
        ({"roster_digest": bytes(32)}, "another roster"),
    ],
)
def test_sessions_against_the_policy_get_no_key(changes: dict[str, Any], words: str) -> None:
    site = joined(session(TEN, **changes))
    assert not site.sent
    assert site.refusal is not None
    assert site.refusal.code == "policy"
    assert words in site.refusal.reason


def test_few_sites_and_modes_not_allowed_get_no_key() -> None:
    few = federation(4)
    loose = {"colluders": 1, "min_sites": 4, "min_survivors": 4}
    assert "min_sites is 4" in str(joined(session(few, **loose), few).refusal)
    assert joined(session(few, **loose), few, policy=SumPolicy(min_sites=4, min_survivors=4)).sent
    assert "protection 'masks'" in str(joined(session(TEN), policy=SumPolicy(modes=frozenset())).refusal)


@pytest.mark.parametrize("place", [2, 14 + 2 + 8 + 4])  # suite; mode, after two names, the round and the attempt
def test_unknown_suites_and_modes_are_against_the_policy(place: int) -> None:
    data = bytearray(session(TEN).to_bytes())
    place = place if place == 2 else 2 + 1 + 7 + 7 + 8 + 4
    assert data[place] == 1
    data[place] = 77
    site = TEN.sites(SumPolicy())[0]
    offer = Offer(bytes(data), TEN.roster.to_bytes())
    site.join(frame(Kind.OFFER, b"s" * 32, offer.to_bytes()), local(session(TEN)))
    assert site.refusal is not None
    assert site.refusal.code == "policy"


def test_a_session_under_another_id_is_refused() -> None:
    described = session(TEN)
    site = TEN.sites(SumPolicy())[0]
    offer = Offer(described.to_bytes(), TEN.roster.to_bytes())
    site.join(frame(Kind.OFFER, b"s" * 32, offer.to_bytes()), local(described))
    assert site.refusal is not None
    assert site.refusal.code == "bad-message"


# 6: too few


@pytest.mark.parametrize("left", [1, 4])
def test_a_sum_of_too_few_is_neither_asked_for_nor_given(left: int) -> None:
    run = up_to(Phase.MASKED)
    run.mask(absent=TEN.ids[left:])
    with pytest.raises(SecureSumFailed) as caught:
        run.send()
    assert caught.value.reason == "too-few"
    requires(run.sites[TEN.ids[0]], survivors_message(run, TEN.ids[:left]), "too-few")


# U1: a key list for each half of the sites


def halves(described: SessionDescriptor) -> list[Server]:
    """Each half of the honest sites is shown its own keys and the colluders', who play along in both."""
    whole = up_to(Phase.KEYS, described=described)
    parts = []
    for half in (TEN.ids[2:6], TEN.ids[6:]):
        members = sorted((*COLLUDERS, *half))
        sites = [Site(whole.sites[site].member, whole.sites[site].stored) for site in members]
        part = server(TEN, described, sites=sites)
        for site in members:
            part.take(whole.sites[site].sent[0])
        part.send()
        part.send()
        part.mask()
        parts.append(part)
    return parts


def test_a_key_list_for_each_half_does_not_give_two_sums() -> None:
    for part in halves(session(TEN)):
        part.send()
        for site in part.sites.values():
            requires(site, ack_list(part, site.state.view, list(part.sites.values())), "too-few")


def test_one_list_of_survivors_does_not_open_two_halves() -> None:
    parts = halves(session(TEN))
    masked = {site: message for part in parts for site, message in part.collection.masked.items()}
    everybody = signed_list([masked[site] for site in TEN.ids])
    for part in parts:
        for site in part.sites.values():
            if site.id not in COLLUDERS:
                requires(site, frame(Kind.SURVIVORS, part.described.sid, everybody), "bad-list")


def test_control_with_a_quorum_among_those_with_keys_there_are_two_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionDescriptor, "needed_acks", thresholds.majority(6, 2))
    for part in halves(session(TEN)):
        part.send()
        part.send()
        assert len(part.require_exact().survivors) == 6


# U2: different lists of dealers for different sites


def test_two_groups_cannot_be_summed_apart() -> None:
    """Each half is told that only it has dealt shares: the masks within a half cancel, and two sums would show."""
    made = federation(12)
    run = up_to(Phase.SHARES, made, session(made, colluders=3, min_sites=6, min_survivors=6, num_coordinates=3))
    run.collection.close()
    half = made.ids[:6]
    for dealers in (half, made.ids[6:]):
        for site in dealers:
            sealed = tuple(
                replace(item, other=dealer)
                for dealer in dealers
                if dealer != site
                for item in run.collection.shares[dealer].sealed
                if item.other == site
            )
            message = frame(Kind.DELIVER, run.described.sid, Deliver(tuple(dealers), sealed).to_bytes())
            requires(run.sites[site], message, "too-few")  # t = 8 holders are needed, six are named


def test_a_survivor_that_has_dealt_no_shares_is_refused() -> None:
    made = TEN
    run = up_to(Phase.SHARES, made)
    run.collection.close()
    victim, left_out = run.sites[made.ids[0]], made.ids[9]
    dealers = tuple(site for site in made.ids if site != left_out)
    sealed = tuple(
        replace(item, other=dealer)
        for dealer in dealers
        if dealer != victim.id
        for item in run.collection.shares[dealer].sealed
        if item.other == victim.id
    )
    victim.receive(frame(Kind.DELIVER, run.described.sid, Deliver(dealers, sealed).to_bytes()))
    for site in made.ids[1:]:
        full = Deliver(
            made.ids,
            tuple(
                replace(item, other=dealer)
                for dealer in made.ids
                if dealer != site
                for item in run.collection.shares[dealer].sealed
                if item.other == site
            ),
        )
        run.sites[site].receive(frame(Kind.DELIVER, run.described.sid, full.to_bytes()))
    run.mask()
    requires(victim, survivors_message(run, made.ids), "bad-list")


def test_sites_that_were_shown_other_dealers_do_not_make_up_the_acks() -> None:
    """The acknowledged view covers keys and dealers too: the same survivors under other dealers are another view."""
    run = up_to(Phase.MASKED)
    run.mask()
    masked = [run.collection.masked[site] for site in TEN.ids[:8]]
    keys = list(run.collection.keys.values())
    sid = run.described.sid
    views = {
        view_digest(sid, keys, TEN.ids, masked),
        view_digest(sid, keys, TEN.ids[:9], masked),
        view_digest(sid, keys[:9], TEN.ids[:9], masked),
        view_digest(sid, keys, TEN.ids, masked[:7]),
    }
    assert len(views) == 4


# 10, 11: models


@pytest.mark.parametrize("what", ["model_digest", "config_digest", "layout_digest"])
def test_another_model_for_one_site_is_refused_by_it(what: str) -> None:
    site = joined(session(TEN), **{what: b"?" * 32})
    assert not site.sent
    assert site.refusal is not None
    assert site.refusal.code == "policy"
    other = session(TEN, **{what: b"?" * 32})
    assert other.sid != session(TEN).sid  # and with its own descriptor it is in no common session


def test_another_length_is_refused() -> None:
    assert "sums 40 coordinates, the layout has 41" in str(joined(session(TEN), num_coordinates=41).refusal)


def test_a_model_is_used_in_one_round_only() -> None:
    described = session(TEN, round=4, participants=TEN.ids[:9], threshold=thresholds.majority(9, 2))
    site = joined(described, model_used_in=("spring", 3))
    assert not site.sent
    assert site.refusal is not None
    assert site.refusal.code == "policy"
    assert "model-reused" in site.refusal.reason
    assert joined(described, model_used_in=("spring", 4)).sent


def test_a_round_in_which_a_model_was_masked_stays_that_model_s() -> None:
    """Or the site would remember the round as another model's, and the first could be summed from once more."""
    run = up_to(Phase.MASKED)
    run.mask()
    site = run.sites[TEN.ids[0]]
    other = replace(run.described, attempt=2, model_digest=b"?" * 32)
    before = site.state
    assert site.join(SumCollection(other, TEN.roster).offer(), local(other, model_digest=b"?" * 32)) is None
    assert site.refusal is not None
    assert "another model in this round" in site.refusal.reason
    assert site.state == before


# bytes


@pytest.mark.parametrize("change", ["cut", "longer", "huge", "kind"])
def test_frames_of_the_server_that_are_not_right_end_the_session_or_are_ignored(change: str) -> None:
    run = up_to(Phase.KEYS)
    message = run.collection.close()[TEN.ids[0]]
    wrong = {
        "cut": message[:-1],
        "longer": message + b"\0",
        "huge": message + bytes(1 << 20),
        "kind": bytes([Kind.SURVIVORS]) + message[1:],
    }[change]
    requires(run.sites[TEN.ids[0]], wrong, "bad-message", ended=change != "huge")


# forged lists


def test_survivors_that_did_not_sign_are_refused() -> None:
    run = up_to(Phase.MASKED)
    run.mask()
    messages = list(run.collection.masked.values())
    messages.sort(key=lambda message: message.sender)
    forged = [*messages[:-1], replace(messages[-1], body=b"?" * 32)]
    requires(run.sites[TEN.ids[0]], frame(Kind.SURVIVORS, run.described.sid, signed_list(forged)), "bad-signature")


def test_another_masked_update_of_mine_is_refused() -> None:
    """Even one that is signed with this site's key, as a thief of the key could."""
    run = up_to(Phase.MASKED)
    run.mask()
    messages = sorted(run.collection.masked.values(), key=lambda message: message.sender)
    site = run.sites[TEN.ids[0]]
    other = sign(site.member.key, Kind.MASKED, run.described.sid, b"?" * 32)
    requires(site, frame(Kind.SURVIVORS, run.described.sid, signed_list([other, *messages[1:]])), "bad-list")


def test_acks_that_nobody_signed_are_refused() -> None:
    run = up_to(Phase.ACKS)
    site = run.sites[TEN.ids[0]]
    acks = [Signed(Kind.ACK, run.described.sid, sender, site.state.view, b"x" * 64) for sender in TEN.ids]
    requires(site, frame(Kind.ACK_LIST, run.described.sid, signed_list(acks)), "bad-signature")


def test_acks_of_sites_outside_the_sum_do_not_count() -> None:
    run = up_to(Phase.MASKED)
    run.mask(absent={TEN.ids[9]})
    run.send()
    site = run.sites[TEN.ids[0]]
    requires(site, ack_list(run, site.state.view, list(run.sites.values())), "bad-list")


@pytest.mark.parametrize("change", ["missing", "extra", "order"])
def test_deliveries_other_than_of_every_dealer_are_refused(change: str) -> None:
    run = up_to(Phase.SHARES)
    site = TEN.ids[0]
    honest = Deliver.from_bytes(run.collection.close()[site][33:])
    sealed = {
        "missing": honest.sealed[1:],
        "extra": (*honest.sealed, replace(honest.sealed[0], other=site)),
        "order": honest.sealed[::-1],
    }[change]
    message = frame(Kind.DELIVER, run.described.sid, replace(honest, sealed=sealed).to_bytes())
    requires(run.sites[site], message, "bad-list")
