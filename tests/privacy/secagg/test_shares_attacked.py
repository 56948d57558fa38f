"""Sites and servers that lie in a session of shares: named, left out, or the round is lost; nothing false is summed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from by_definition import geometry
from foedus.privacy.secagg import judging, sharing_site, sketching
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.dealing import Dealing, dealt, proved
from foedus.privacy.secagg.messages import Unmask, frame, signed_list
from foedus.privacy.secagg.sharing_messages import (
    Box,
    Boxes,
    Products,
    Selection,
    SumAnswer,
    split_boxes,
    view_of_selection,
)
from foedus.privacy.secagg.sharing_opening import add_up_shares
from foedus.privacy.secagg.signing import Kind, Signed, sign
from foedus.privacy.secagg.sketch_terms import bound_of
from foedus.privacy.secagg.state import Stage
from foedus.privacy.sharing.dealers import Judgement
from foedus.privacy.sharing.field import Elements, Integers, P, Stream, add, from_integers, to_integers
from foedus.privacy.sharing.packing import at_data_points, deal, hidden_blocks
from secure_sums import Site, federation, local
from shared_sums import UNEQUAL, ShareServer, next_session, share_server, shared
from sketch_attacks import fails

pytestmark = pytest.mark.adversarial

TEN = federation(10)
LIAR, OTHER, THIRD = TEN.ids[3], TEN.ids[7], TEN.ids[8]
COLLUDERS, HONEST = TEN.ids[:2], TEN.ids[2:]
Tamper = Callable[[Dealing, Elements], None]


def at(phase: Phase, **changes: Any) -> ShareServer:
    run = share_server(TEN, shared(TEN, **changes))
    run.to(phase)
    return run


def settled(**changes: Any) -> ShareServer:
    """A session whose members are settled, and nobody has dealt."""
    run = share_server(TEN, shared(TEN, **changes))
    run.offer()
    run.send()
    return run


def refused(run: ShareServer) -> set[bytes]:
    assert run.collection.judged is not None
    return set(run.collection.judged.refused)


def require_exact_distances(run: ShareServer) -> None:
    judged = run.collection.judged
    assert judged is not None
    plain_ND = np.array([run.plain[site] for site in judged.sites])
    np.testing.assert_array_equal(judged.squared_PP, geometry(plain_ND).squared_PP)


# 18: holders that lie


def products_off(run: ShareServer, by: int) -> Callable[[bytes], bytes]:
    """The products, and no test."""
    dealers = len(run.collection.deals)
    masking = len(set(run.collection.dealing.mask_dealers) & set(run.collection.deals))

    def change(body: bytes) -> bytes:
        said = Products.from_bytes(body, dealers, masking, dealers)
        return Products(add(said.products_A, np.uint64(by)), said.degrees_N, said.masks_Z, said.short_S).to_bytes()

    return change


def everything_off(_run: ShareServer, by: int) -> Callable[[bytes], bytes]:
    return lambda body: add(np.frombuffer(body, "<u8").astype(np.uint64), np.uint64(by)).astype("<u8").tobytes()


@pytest.mark.parametrize("lie", [products_off, everything_off])
def test_liars_and_drop_outs_are_named_and_everything_else_is_exact(
    lie: Callable[[ShareServer, int], Callable[[bytes], bytes]],
) -> None:
    run = share_server(TEN, shared(TEN))
    run.to(Phase.CONFIRMATIONS, {THIRD: Phase.CONFIRMATIONS})
    run.send_changed({LIAR: lie(run, 5)})
    run.to(Phase.ACKS)
    assert refused(run) == {LIAR}
    require_exact_distances(run)
    run.to(Phase.SUMS)
    run.require_exact()


@pytest.mark.parametrize("lie", [products_off, everything_off])
def test_with_one_liar_more_nothing_is_decoded_and_nobody_selected(
    lie: Callable[[ShareServer, int], Callable[[bytes], bytes]],
) -> None:
    run = at(Phase.CONFIRMATIONS)
    run.send_changed({site: lie(run, 5 + 7 * place**3) for place, site in enumerate((LIAR, OTHER))})
    assert fails(run.collection.close, "undecodable") == ()
    assert run.collection.selected == ()
    assert not run.collection.revealing


def sum_off(run: ShareServer, by: int) -> Callable[[bytes], bytes]:
    def change(body: bytes) -> bytes:
        said = SumAnswer.from_bytes(body, run.collection.dealing.columns)
        return SumAnswer(said.unmask, add(said.sum_L, np.uint64(by))).to_bytes()

    return change


def test_a_holder_that_lies_about_the_sum_is_named_and_the_sum_is_exact() -> None:
    run = at(Phase.ACKS)
    run.send_changed({LIAR: sum_off(run, 3)})
    assert run.require_exact().liars == (LIAR,)


def test_too_many_that_lie_about_the_sum_leave_nothing() -> None:
    run = at(Phase.ACKS)
    run.send_changed({LIAR: sum_off(run, 3), OTHER: sum_off(run, 100)})
    fails(lambda: add_up_shares(run.collection), "undecodable")
    assert run.collection.revealing


def test_a_sum_takes_no_shares_of_seeds() -> None:
    """There are no masks, so whoever sends what would take them off is refused."""
    run = at(Phase.ACKS)
    body = Unmask(()).to_bytes()
    run.send_changed({LIAR: lambda said: b"\0\0\0\1" + bytes(50) + said[len(body) :]})
    assert [refusal.code for refusal in run.refusals] in (["bad-message"], ["bad-share"])
    run.require_exact()


# 19: dealers that deal no shares of an update


def dealing_badly(monkeypatch: pytest.MonkeyPatch, liar: bytes, tamper: Tamper) -> None:
    def deals(dealing: Dealing, dealer: bytes, vector_L: Integers, draw: Stream) -> Elements:
        rows = dealt(dealing, dealer, vector_L, draw)
        if dealer == liar:
            tamper(dealing, rows)
        return rows

    monkeypatch.setattr(sketching, "dealt", deals)


def proving_badly(monkeypatch: pytest.MonkeyPatch, liar: bytes, tamper: Tamper) -> None:
    sites = iter(TEN.ids)

    def proves(dealing: Dealing, vector_L: Integers, agreement: bytes, draw: Stream) -> Elements:
        rows = proved(dealing, vector_L, agreement, draw)
        if next(sites) == liar:
            tamper(dealing, rows)
        return rows

    monkeypatch.setattr(sketching, "proved", proves)


def too_high(dealing: Dealing, rows: Elements) -> None:
    """A share that lies on a polynomial of higher degree."""
    for place, point in enumerate(dealing.packing.holder_points()):
        rows[place, 2] = (int(rows[place, 2]) + pow(point, dealing.packing.degree + 1, P)) % P


def other_for_one(dealing: Dealing, rows: Elements) -> None:
    rows[9, 2] = add(rows[9:, 2], np.uint64(1))[0]


def no_zero_sum(dealing: Dealing, rows: Elements) -> None:
    """A mask whose values at the data points do not add up to 0."""
    rows[:, dealing.columns + 2] = add(rows[:, dealing.columns + 2], np.uint64(1))


def add_constant(dealing: Dealing, rows: Elements) -> None:
    """A bit that is none; or a projection with other bits."""
    rows[:, 17] = add(rows[:, 17], np.uint64(1))


def plain_dealer(run: ShareServer) -> bytes:
    return next(site for site in TEN.ids[:9] if site not in run.collection.dealing.mask_dealers)


def test_shares_of_too_high_a_degree_are_their_dealers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    run = settled()
    liar = plain_dealer(run)
    dealing_badly(monkeypatch, liar, too_high)
    run.deal()
    run.to(Phase.SUMS)
    assert refused(run) == {liar}
    run.require_exact()


def test_a_dealer_and_a_holder_that_contradict_each_other_are_both_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = settled()
    liar = plain_dealer(run)
    dealing_badly(monkeypatch, liar, other_for_one)
    run.deal()
    run.to(Phase.SUMS)
    assert refused(run) == {liar, TEN.ids[9]}
    require_exact_distances(run)
    run.require_exact()


def test_bits_that_are_none_are_their_dealers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    run = settled()
    proving_badly(monkeypatch, LIAR, add_constant)
    run.deal()
    run.to(Phase.SUMS)
    assert refused(run) == {LIAR}
    run.require_exact()


def test_masks_that_do_not_add_up_end_the_attempt_and_the_next_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    run = settled()
    liar = run.collection.dealing.mask_dealers[0]
    dealing_badly(monkeypatch, liar, no_zero_sum)
    run.deal()
    run.to(Phase.PRODUCTS)
    assert fails(run.collection.close, "bad-dealer") == (liar,)
    left = tuple(site for site in TEN.ids if site != liar)
    again = attempt(run, left, wrong_holders=0, byzantine=0)
    again.run()
    again.require_exact()


# 20: vectors that wrap around


def wrapping(run: ShareServer) -> tuple[Integers, Integers]:
    """u and v - u: what two colluders add where everybody else has zeros, so that no product modulo p shows it.

    u has entries of the size of p, ⟨u, u⟩ = 0 and ⟨u, v⟩ = ⟨v, v⟩ / 2: so ⟨v - u, v - u⟩ = 0 as well. Squares, and
    products with honest updates, are then those without the two; and v is in the sum.
    """
    d = run.described.num_coordinates
    v_D = np.zeros(d, np.int64)
    v_D[[-5, -4]] = (3, 4)
    v_D *= 1000
    half = int(v_D @ v_D) // 2
    a = 123_456_789_012_345_678
    b = (half - 3000 * a) * pow(4000, -1, P) % P
    c, e = two_squares(-(a * a + b * b) % P)
    u_D = np.zeros(d, np.int64)
    u_D[[-5, -4, -3, -2]] = [centred(x) for x in (a, b, c, e)]
    return u_D, np.array([centred((int(one) - int(other)) % P) for one, other in zip(v_D, u_D, strict=True)])


def two_squares(rest: int) -> tuple[int, int]:
    """c² + e² = rest (mod p); since p = 3 (mod 4), a square root is a power."""
    for c in range(1, 1000):
        e = pow((rest - c * c) % P, (P + 1) // 4, P)
        if (e * e + c * c) % P == rest:
            return c, e
    raise AssertionError


def centred(x: int) -> int:
    return x - P if x > P >> 1 else x


@pytest.mark.parametrize("proof", [True, False])
def test_two_colluders_that_wrap_around_are_refused_by_the_proof_and_by_nothing_else(
    proof: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = share_server(TEN, shared(TEN, byzantine=2))
    for update_D in run.updates.values():
        update_D[-6:] = 0
    if not proof:
        monkeypatch.setattr(judging, "judge_shortness", lambda *_: Judgement((), ()))
    run.offer()
    run.send()
    one, two = LIAR, OTHER
    u_D, rest_D = wrapping(run)
    run.deal({one, two})
    base_D = run.plain[TEN.ids[5]]
    integers = {one: base_D + u_D, two: base_D + rest_D}
    monkeypatch.setattr(sketching, "proved", proving_whatever(integers))
    for site, integers_D in integers.items():
        run.deal_integers(run.sites[site], integers_D)
    if not proof:
        run.collection.choose = lambda judged: judged.sites
    run.to(Phase.SUMS)
    assert refused(run) == ({one, two} if proof else set())
    if proof:
        run.require_exact()
        return
    judged = run.collection.judged
    assert judged is not None
    apart_PP = judged.squared_PP
    assert apart_PP[3, 5] == apart_PP[7, 5] < 10**4  # as good as the honest update that they started from
    found, honest_D = add_up_shares(run.collection), sum(run.plain[site] for site in TEN.ids if site not in integers)
    assert np.array_equal(found.sum_D, honest_D + 2 * base_D + u_D + rest_D)
    assert (found.sum_D[[-5, -4]] == (3000, 4000)).all()  # where all honest updates are zero


def proving_whatever(integers: dict[bytes, Integers]) -> Callable[[Dealing, Integers, bytes, Stream], Elements]:
    """Whoever is too long proves the projections of something else, the best that it can do."""

    def proves(dealing: Dealing, vector_L: Integers, agreement: bytes, draw: Stream) -> Elements:
        if np.abs(vector_L).max() > 1 << 40:
            vector_L = np.zeros_like(vector_L)
        return proved(dealing, vector_L, agreement, draw)

    return proves


def test_an_update_longer_than_allowed_is_left_out_for_its_square() -> None:
    """A site that does not clip. Its projections may pass; its square is exact."""
    run = settled()
    run.deal({LIAR})
    long_D = run.plain[TEN.ids[5]].astype(np.float64)
    bound = bound_of(run.described)
    long_D = np.rint(long_D * (bound + 3) / np.linalg.norm(long_D)).astype(np.int64)
    assert int(long_D @ long_D) > bound**2
    run.deal_integers(run.sites[LIAR], long_D)
    run.to(Phase.SUMS)
    assert run.collection.judged is not None
    assert run.collection.judged.refused == {LIAR: "its update is longer than the clip norm allows"}
    run.require_exact()


def test_what_is_dealt_behind_the_end_of_an_update_counts_as_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """31 values in two blocks leave one place that no sum shows."""
    run = settled()

    def deals(dealing: Dealing, dealer: bytes, vector_L: Integers, draw: Stream) -> Elements:
        rows = dealt(dealing, dealer, vector_L, draw)
        if dealer == LIAR:
            longer_L = np.append(vector_L, bound_of(run.described))
            packing = dealing.packing
            rows[:, : dealing.columns] = deal(packing, hidden_blocks(packing, from_integers(longer_L), draw))
        return rows

    monkeypatch.setattr(sketching, "dealt", deals)
    monkeypatch.setattr(judging, "judge_shortness", lambda *_: Judgement((), ()))
    run.deal()
    run.to(Phase.ACKS)
    assert refused(run) == {LIAR}


# 21, 22: servers that lie


def requires(site: Site, message: bytes, code: str) -> None:
    """The message is refused under that code, the session over, and no secret left."""
    before = len(site.sent)
    assert site.receive(message) is None
    assert site.refusal is not None
    assert site.refusal.code == code, site.refusal
    assert len(site.sent) == before
    state = site.state
    assert state.stage is Stage.ENDED
    assert not any((state.held, state.seal_key, state.mask_key, state.seed, state.rounding, state.sharing))


def selecting(run: ShareServer, weights: dict[bytes, int]) -> bytes:
    return frame(Kind.SELECT, run.described.sid, Selection(weights).to_bytes())


@pytest.mark.parametrize(
    ("weights", "code"),
    [
        (dict.fromkeys(TEN.ids[:4], 1), "selection-too-small"),
        ({TEN.ids[5]: 1}, "selection-too-small"),
        (dict.fromkeys(TEN.ids, 1) | {TEN.ids[5]: 1000}, "selection-too-small"),
        (dict.fromkeys(TEN.ids, 1) | {TEN.ids[5]: 0}, None),
        (dict.fromkeys(TEN.ids, 1025), "selection-too-small"),
        (dict.fromkeys(TEN.ids, 0), "selection-too-small"),
        ({}, "selection-too-small"),
        (dict.fromkeys((*TEN.ids[:9], b"s" * 16), 1), "bad-list"),
        ({site: 1 + place for place, site in enumerate(TEN.ids)}, None),
    ],
)
def test_a_selection_that_does_not_hide_an_update_is_refused(weights: dict[bytes, int], code: str | None) -> None:
    run = share_server(TEN, shared(TEN), policy=UNEQUAL)
    run.to(Phase.PRODUCTS)
    site = run.sites[TEN.ids[5]]
    if code is None:
        assert site.receive(selecting(run, weights)) is not None
    else:
        requires(site, selecting(run, weights), code)


def one_more(victim: bytes, usual: int) -> dict[bytes, int]:
    return dict.fromkeys(TEN.ids, usual) | {victim: usual + 1}


@pytest.mark.parametrize("weights", [one_more(TEN.ids[3], 1023), one_more(TEN.ids[3], 1), dict.fromkeys(TEN.ids, 2)])
def test_updates_that_do_not_weigh_the_same_are_not_summed(weights: dict[bytes, int]) -> None:
    run = at(Phase.PRODUCTS)
    for site in HONEST:
        requires(run.sites[site], selecting(run, weights), "policy")


def test_where_weights_may_differ_their_common_divisor_shows_one_update() -> None:
    """What the policy is for: without it the sum, but for what 1023 divides, is the victim's update."""
    victim = TEN.ids[3]
    run = share_server(TEN, shared(TEN, scale=8.0), policy=UNEQUAL, choose=lambda judged: one_more(victim, 1023))
    run.run()
    rest_D = run.require_exact().sum_D % 1023
    np.testing.assert_array_equal(np.where(rest_D > 511, rest_D - 1023, rest_D), run.plain[victim])


def test_the_server_itself_refuses_weights_that_the_sites_would() -> None:
    run = at(Phase.PRODUCTS)
    run.collection.choose = lambda judged: dict.fromkeys(judged.sites, 1) | {judged.sites[0]: 1000}
    fails(run.collection.close, "selection-too-small")


def test_two_selections_are_never_both_summed() -> None:
    run = at(Phase.PRODUCTS)
    left, right = (dict.fromkeys(TEN.ids, 1), dict.fromkeys(TEN.ids[:9], 1))
    halves = (HONEST[:4], left), (HONEST[4:], right)
    challenge = challenge_of(run)
    for half, weights in halves:
        view = view_of_selection(run.described.sid, challenge, Selection(weights))
        acks = [Signed.from_bytes(answer) for site in half if (answer := said(run, site, weights)) is not None]
        acks += [sign(run.sites[site].member.key, Kind.ACK, run.described.sid, view) for site in COLLUDERS]
        acks.sort(key=lambda message: message.sender)
        for site in half:
            requires(run.sites[site], frame(Kind.ACK_LIST, run.described.sid, signed_list(acks)), "too-few")
    # And who has acknowledged one selection answers no other.
    other = at(Phase.ACKS).sites[TEN.ids[5]]
    requires(other, frame(Kind.SELECT, run.described.sid, Selection(left).to_bytes()), "bad-message")


def challenge_of(run: ShareServer) -> bytes:
    sharing = run.sites[TEN.ids[5]].state.sharing
    assert sharing is not None
    return sharing.challenge


def said(run: ShareServer, site: bytes, weights: dict[bytes, int]) -> bytes | None:
    return run.sites[site].receive(selecting(run, weights))


def test_two_lists_of_keys_are_dealt_for_but_agreed_on_by_nobody() -> None:
    """Each half of the sites is shown the keys of that half and of the colluders."""
    run = share_server(TEN, shared(TEN, min_sites=5, privacy_threshold=2, packing=1))
    run.offer()
    run.collection.close()
    sid = run.described.sid
    keys = {site: Signed.from_bytes(run.sites[site].sent[0]) for site in TEN.ids}
    for half in (HONEST[:5], HONEST[3:]):
        shown = sorted({*half, *COLLUDERS})
        listed = signed_list([keys[site] for site in shown])
        for site in half:
            if run.sites[site].state.stage is Stage.KEYS_SENT:
                run.sites[site].receive(frame(Kind.KEY_LIST, sid, listed))
        run.deal(set(TEN.ids) - set(half))
    assert all(refusal.code == "bad-list" for refusal in run.refusals)
    fails(run.collection.close, "too-few")


def test_a_key_list_without_this_site_or_with_a_key_that_all_would_know_is_refused() -> None:
    run = share_server(TEN, shared(TEN))
    run.offer()
    keys = [Signed.from_bytes(run.sites[site].sent[0]) for site in TEN.ids]
    without = frame(Kind.KEY_LIST, run.described.sid, signed_list([key for key in keys if key.sender != LIAR]))
    requires(run.sites[LIAR], without, "bad-list")
    low = sign(run.sites[OTHER].member.key, Kind.KEYS, run.described.sid, bytes(32) + keys[7].body[32:])
    changed = frame(Kind.KEY_LIST, run.described.sid, signed_list([*keys[:7], low, *keys[8:]]))
    requires(run.sites[THIRD], changed, "bad-key")


def test_boxes_are_opened_only_for_what_was_agreed_on() -> None:
    run = at(Phase.AGREEMENTS)
    site = run.sites[LIAR]
    boxes = tuple(
        Box(dealer, next(box.ciphertext for box in split_boxes(run.sites[dealer].sent[1])[1] if box.other == LIAR))
        for dealer in TEN.ids
        if dealer != LIAR
    )
    requires(site, frame(Kind.BOXES, run.described.sid, Boxes((), boxes).to_bytes()), "bad-message")


# other attempts


def attempt(run: ShareServer, participants: tuple[bytes, ...] = TEN.ids, **changes: Any) -> ShareServer:
    threshold = run.described.share_threshold(len(participants))
    described = next_session(run.described, participants=participants, threshold=threshold, **changes)
    return share_server(TEN, described, sites=list(run.sites.values()), updates=run.updates)


def test_who_has_acknowledged_a_selection_deals_in_no_other_attempt() -> None:
    """Else sites that stay could open the one sum and those that go on another; t_ack is what keeps both from that."""
    run = at(Phase.ACKS)
    again = attempt(run)
    again.offer()
    again.send()
    for site in TEN.ids:
        assert again.sites[site].refusal is not None
        assert "has acknowledged a selection in an earlier attempt" in again.sites[site].refusal.reason


@pytest.mark.parametrize("forgetful", [False, True])
def test_two_attempts_that_differ_by_one_site_are_not_both_opened_unless_sites_forget(
    forgetful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two honest sites stay in the first, with the colluders T + K; the six others go on to the second."""
    if forgetful:
        monkeypatch.setattr(sharing_site, "require_one_opening", lambda *_: None)
    staying, victim = HONEST[:2], HONEST[5]
    others = tuple(site for site in TEN.ids if site not in staying)
    first = share_server(TEN, shared(TEN), choose=lambda _: [site for site in others if site != victim])
    first.to(Phase.ACKS)
    message, dealing = first.collection.close()[staying[0]], first.collection.dealing
    answers = {}
    for site in (*staying, *COLLUDERS):
        state = first.sites[site].stored
        answers[site] = first.sites[site].receive(message)
        if site in COLLUDERS:  # they take part in both
            first.sites[site].stored = state
    second = attempt(first, others, packing=1, wrong_holders=0, byzantine=0, privacy_threshold=2)
    second.collection.choose = lambda _: others
    if not forgetful:
        second.offer()
        requires(second.sites[victim], second.collection.close()[victim], "policy")
        return
    second.run()
    columns, places = dealing.columns, dealing.places(sorted(answers))
    said_HL = np.array(
        [SumAnswer.from_bytes(Signed.from_bytes(answers[site] or b"").body, columns).sum_L for site in sorted(answers)]
    )
    opened_D = to_integers(at_data_points(dealing.packing, places, said_HL, dealing.packing.degree).reshape(-1)[:31])
    found_D = second.require_exact().sum_D - opened_D
    assert np.abs(found_D - second.plain[victim]).max() <= len(others)  # but for rounding, the victim's update


def test_a_server_cannot_make_a_site_forget_that_it_has_acknowledged() -> None:
    run = at(Phase.ACKS)
    site = run.sites[LIAR]
    requires(site, frame(Kind.ACK_LIST, run.described.sid, b"nonsense"), "bad-message")
    again = attempt(run)
    again.offer()
    requires(site, again.collection.close()[LIAR], "policy")


@pytest.mark.parametrize("phase", [Phase.DEALS, Phase.CONFIRMATIONS, Phase.PRODUCTS])
def test_before_that_another_attempt_is_made_once_more_and_then_no_more(phase: Phase) -> None:
    run = at(phase)
    again = attempt(run)
    again.to(Phase.PRODUCTS)
    third = attempt(again)
    third.offer()
    assert not third.collection.masks.keys
    refusal = third.sites[LIAR].refusal
    assert refusal is not None
    assert "in 2 attempts" in refusal.reason


def test_an_attempt_without_too_many_of_the_last_is_refused() -> None:
    run = at(Phase.PRODUCTS)
    again = attempt(run, TEN.ids[:7], packing=1, wrong_holders=0, dropouts=0, byzantine=0)
    again.offer()
    requires(run.sites[LIAR], again.collection.close()[LIAR], "policy")


def test_a_site_that_has_revealed_joins_no_other() -> None:
    run = at(Phase.SUMS)
    again = attempt(run)
    assert run.sites[LIAR].join(again.collection.offer(), local(again.described)) is None
    refusal = run.sites[LIAR].refusal
    assert refusal is not None
    assert refusal.code == "already-revealed"
