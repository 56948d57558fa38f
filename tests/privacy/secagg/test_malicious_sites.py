"""Sites that lie: the sum is exact or there is none, nobody honest is blamed, and one site cannot stop the others."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from foedus.errors import ConfigError, InvalidUpdate, SecureSumFailed
from foedus.privacy.secagg import site as site_module
from foedus.privacy.secagg.collect import Phase, SumCollection
from foedus.privacy.secagg.descriptor import next_attempt
from foedus.privacy.secagg.messages import Complaint, Keys, Revealed, Sealed, Shares, Unmask, Which
from foedus.privacy.secagg.opening import add_up, open_sum
from foedus.privacy.secagg.prg import Ring
from foedus.privacy.secagg.shamir import PRIME
from foedus.privacy.secagg.signing import Kind, Signed, sign
from foedus.privacy.secagg.state import Stage
from foedus.privacy.secrets import Secret
from secure_sums import Server, Site, federation, server, session

pytestmark = pytest.mark.adversarial

TEN = federation(10)
LIAR, OTHER = TEN.ids[3], TEN.ids[7]


def start(**changes: Any) -> Server:
    return server(TEN, session(TEN, **({"num_coordinates": 6} | changes)))


def sends(run: Server, kind: Kind, body: bytes, sender: bytes = LIAR) -> None:
    run.take(sign(run.sites[sender].member.key, kind, run.described.sid, body).to_bytes())


def code_of(run: Server) -> str:
    assert run.refusals
    return run.refusals[-1].code


# 8: wrong shares


def lies(run: Server, site: bytes, change: Callable[[int, int], int]) -> None:
    """A holder's last message, with every share changed."""
    message = Signed.from_bytes(run.sites[site].sent[-1])
    assert message.kind is Kind.UNMASK
    shares = []
    for place, item in enumerate(Unmask.from_bytes(message.body).shares):
        value = int.from_bytes(item.share.reveal_bytes(), "big")
        shares.append(replace(item, share=Secret((change(value, place) % PRIME).to_bytes(33, "big"))))
    sends(run, Kind.UNMASK, Unmask(tuple(shares)).to_bytes(), site)


@pytest.mark.parametrize("liars", [(LIAR,), (LIAR, OTHER)])
def test_a_wrong_share_is_left_out_its_holder_named_and_the_sum_exact(liars: tuple[bytes, ...]) -> None:
    run = start()
    run.run(dict.fromkeys(liars, Phase.UNMASK))
    for site in liars:
        run.sites[site].receive(run.outbox[site])
        lies(run, site, lambda value, place: value + secrets.randbelow(PRIME))
    assert run.require_exact().liars == tuple(sorted(liars))


def test_as_many_liars_as_the_shares_allow_do_not_spoil_the_sum() -> None:
    run = start()
    liars = TEN.ids[:3]
    run.run(dict.fromkeys(liars, Phase.UNMASK))
    for site in liars:
        run.sites[site].receive(run.outbox[site])
        lies(run, site, lambda value, place: value + 1 + place)
    assert set(run.require_exact().liars) <= set(liars)


def test_with_more_liars_there_is_no_sum() -> None:
    run = start()
    liars = TEN.ids[:4]
    run.run(dict.fromkeys(liars, Phase.UNMASK))
    for site in liars:
        run.sites[site].receive(run.outbox[site])
        lies(run, site, lambda value, place: value + secrets.randbelow(PRIME))
    with pytest.raises(SecureSumFailed) as caught:
        run.result()
    assert caught.value.reason == "bad-dealer"


@pytest.mark.parametrize("what", ["other secret", "stranger", "twice", "too great", "both"])
def test_shares_that_were_not_asked_for_are_refused(what: str) -> None:
    run = start()
    run.run({LIAR: Phase.UNMASK})
    run.sites[LIAR].receive(run.outbox[LIAR])
    shares = list(Unmask.from_bytes(Signed.from_bytes(run.sites[LIAR].sent[-1]).body).shares)
    match what:
        case "other secret":
            shares[0] = replace(shares[0], which=Which.MASK_KEY)
        case "stranger":
            shares[0] = replace(shares[0], owner=b"\0" * 16)
        case "twice":
            shares[1] = shares[0]
        case "both":  # a site in both lists of the request
            shares.insert(1, Revealed(shares[0].owner, Which.MASK_KEY, shares[0].share))
        case _:
            shares[0] = replace(shares[0], share=Secret(PRIME.to_bytes(33, "big")))
    sends(run, Kind.UNMASK, Unmask(tuple(shares)).to_bytes())
    assert code_of(run) in ("bad-share", "bad-list")
    assert run.refusals[-1].blamed in ((LIAR,), (shares[0].owner,))
    run.require_exact()


# 9: a dealer of shares that do not belong together


def inconsistent(run: Server, monkeypatch: pytest.MonkeyPatch, dealer: bytes) -> None:
    honest = site_module.share

    def random_shares(secret: Secret, threshold: int, num_holders: int) -> tuple[Secret, ...]:
        return tuple(Secret(secrets.randbelow(PRIME).to_bytes(33, "big")) for _ in range(num_holders))

    messages = run.collection.close()
    for site, message in messages.items():
        monkeypatch.setattr(site_module, "share", random_shares if site == dealer else honest)
        run.take(run.sites[site].receive(message))


@pytest.mark.parametrize("leaves", [True, False])
def test_a_dealer_of_inconsistent_shares_is_named_and_no_sum_comes_out(
    leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    run.offer()
    inconsistent(run, monkeypatch, LIAR)
    run.send()
    run.mask({LIAR} if leaves else ())
    run.send()
    run.send()
    with pytest.raises(SecureSumFailed) as caught:
        run.result()
    assert caught.value.reason == "bad-dealer"
    assert caught.value.blamed == (LIAR,)


def deals_badly_to(run: Server, victims: tuple[bytes, ...], absent: tuple[bytes, ...] = ()) -> None:
    """The liar's sealed shares for some holders do not open."""
    messages = run.collection.close()
    for site in [site for site in messages if site not in absent]:
        message = messages[site]
        reply = run.sites[site].receive(message)
        assert reply is not None
        if site == LIAR:
            sealed = Shares.from_bytes(Signed.from_bytes(reply).body).sealed
            spoilt = tuple(
                Sealed(item.other, bytes(len(item.ciphertext))) if item.other in victims else item for item in sealed
            )
            sends(run, Kind.SHARES, Shares(spoilt).to_bytes())
        else:
            run.take(reply)


@pytest.mark.parametrize("num_victims", [1, 2])
@pytest.mark.parametrize("leaves", [True, False])
def test_up_to_c_complaints_cost_those_shares_only(num_victims: int, leaves: bool) -> None:
    """c sites may complain falsely, so the dealer stays; who complains keeps masking with it and holds no share."""
    run = start()
    victims = (TEN.ids[0], OTHER)[:num_victims]
    run.offer()
    deals_badly_to(run, victims)
    run.send()
    assert [message[0] for message in run.sites[victims[0]].sent][-1] == Kind.COMPLAINT
    run.mask({LIAR} if leaves else ())
    run.send()
    run.send()
    assert run.require_exact().liars == ()


def test_more_complaints_than_colluders_end_the_attempt_and_the_next_goes_on_without_the_dealer() -> None:
    run = start()
    run.offer()
    deals_badly_to(run, TEN.ids[:3])
    run.send()
    assert run.collection.waiting == frozenset()
    with pytest.raises(SecureSumFailed) as caught:
        run.send()
    assert caught.value.reason == "bad-dealer"
    assert caught.value.blamed == (LIAR,)
    assert not run.collection.revealing
    again = next_attempt(run.described, without=caught.value.blamed)
    second = server(TEN, again, sites=[site for site in run.sites.values() if site.id != LIAR])
    second.run()
    assert second.require_exact().survivors == tuple(site for site in TEN.ids if site != LIAR)


def test_too_few_good_holders_without_as_many_complaints_are_nobodys_fault() -> None:
    """Two that complain may lie, and two more have left: six good shares of the seven needed."""
    run = start()
    assert (run.described.threshold, run.described.colluders) == (7, 2)
    run.offer()
    deals_badly_to(run, TEN.ids[:2], absent=TEN.ids[8:])
    run.send()
    assert run.collection.spoilers == ()
    assert run.collection.waiting == frozenset(
        TEN.ids[:8]
    )  # more complaints may still come, and tell whose fault it is
    with pytest.raises(SecureSumFailed, match="6 holders have good shares of a dealer, expected at least 7") as caught:
        run.send()
    assert (caught.value.reason, caught.value.blamed) == ("too-few", ())


@pytest.mark.parametrize("half", [0, 1])
def test_shares_beyond_the_field_are_complained_about_and_no_holder_is_blamed_for_them(
    half: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, turns, honest = start(), count(), site_module.share

    def too_large(secret: Secret, threshold: int, num_holders: int) -> tuple[Secret, ...]:
        wrong = next(turns) == half  # the shares of the seed, or of the mask key
        return (Secret(b"\xff" * 33),) * num_holders if wrong else honest(secret, threshold, num_holders)

    run.offer()
    for site, message in run.collection.close().items():
        monkeypatch.setattr(site_module, "share", too_large if site == LIAR else honest)
        run.take(run.sites[site].receive(message))
    run.send()
    assert run.collection.spoilers == (LIAR,)
    assert all(run.sites[site].sent[-1][0] == Kind.COMPLAINT for site in TEN.ids if site != LIAR)
    with pytest.raises(SecureSumFailed) as caught:
        run.send()
    assert (caught.value.reason, caught.value.blamed) == ("bad-dealer", (LIAR,))


def test_a_complaint_about_a_site_that_dealt_nothing_is_refused() -> None:
    run = start()
    run.offer()
    run.send()
    run.send()
    for dealers in ((b"\0" * 16,), (LIAR,), (TEN.ids[5], TEN.ids[4])):
        sends(run, Kind.COMPLAINT, Complaint(dealers).to_bytes())
        assert code_of(run) == "bad-list"


# keys that would make every other site leave


@pytest.mark.parametrize("which", ["seal_key", "mask_key"])
@pytest.mark.parametrize("point", [bytes(32), bytes([1, *[0] * 31])])
def test_keys_of_low_order_cost_the_sender_its_place_and_nobody_else(which: str, point: bytes) -> None:
    run = start()
    run.offer(absent={LIAR})
    sends(run, Kind.KEYS, replace(Keys(b"7" * 32, b"8" * 32, bytes(32)), **{which: point}).to_bytes())
    assert code_of(run) == "bad-key"
    goes_on_without_the_liar(run)


def test_keys_of_another_site_cost_the_sender_its_place() -> None:
    run = start()
    run.offer(absent={LIAR})
    sends(run, Kind.KEYS, run.collection.keys[OTHER].body)
    assert code_of(run) == "bad-key"
    goes_on_without_the_liar(run)


def goes_on_without_the_liar(run: Server) -> None:
    run.send()
    run.send()
    run.mask()
    run.send()
    run.send()
    assert LIAR not in run.require_exact().survivors
    assert len(run.result().survivors) == 9


# 13: what arrives


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda data: data[:-1], "bad-message"),
        (lambda data: data + b"\0", "bad-message"),
        (lambda data: data + bytes(1 << 20), "bad-message"),
        (lambda data: b"", "bad-message"),
        (lambda data: bytes([99]) + data[1:], "bad-message"),
        (lambda data: bytes([Kind.SHARES]) + data[1:], "bad-signature"),
        (lambda data: data[:1] + b"s" * 32 + data[33:], "bad-message"),
        (lambda data: data[:33] + b"\0" * 16 + data[49:], "not-in-roster"),
        (lambda data: data[:33] + OTHER + data[49:], "bad-signature"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "bad-signature"),
    ],
)
def test_a_frame_that_is_not_right_costs_its_sender_only(change: Callable[[bytes], bytes], code: str) -> None:
    run = start()
    run.offer(absent={LIAR})
    message = sign(run.sites[LIAR].member.key, Kind.KEYS, run.described.sid, b"k" * 96).to_bytes()
    run.take(change(message))
    assert code_of(run) == code
    goes_on_without_the_liar(run)


def test_masked_words_other_than_those_signed_cost_their_sender_only() -> None:
    run = start()
    run.offer()
    run.send()
    run.send()
    run.mask(absent={LIAR})
    site = run.sites[LIAR]
    reply = site.mask(run.updates[LIAR])
    assert reply is not None
    assert site.words is not None
    digest, size = hashlib.sha256(site.words.data).digest(), site.words.nbytes
    for wrong_digest, wrong_size in ((b"?" * 32, size), (digest, size - 4), (digest, size + 4), (None, 0)):
        refusal = run.collection.receive(reply, words_digest=wrong_digest, num_bytes=wrong_size)
        assert refusal is not None
        assert refusal.blamed == (LIAR,)
    run.send()
    run.send()
    assert LIAR not in run.require_exact().survivors


def test_late_second_and_early_messages() -> None:
    run = start()
    sends(run, Kind.ACK, b"v" * 32)
    assert code_of(run) == "late"
    run.offer(absent={LIAR})
    first = run.sites[OTHER].sent[0]
    assert run.collection.receive(first) is None  # a repetition
    sends(run, Kind.KEYS, b"k" * 96, OTHER)
    assert code_of(run) == "bad-message"
    run.send()
    sends(run, Kind.KEYS, b"k" * 96)
    assert code_of(run) == "late"
    sends(run, Kind.SHARES, Shares(()).to_bytes())  # it is not in the session any more
    assert code_of(run) == "late"


def test_shares_for_other_holders_than_there_are_are_refused() -> None:
    run = start()
    run.offer()
    run.send(absent={LIAR})
    sealed = Shares.from_bytes(Signed.from_bytes(run.sites[OTHER].sent[-1]).body).sealed
    for wrong in ((), sealed[1:], sealed[::-1], sealed):
        sends(run, Kind.SHARES, Shares(wrong).to_bytes())
        assert code_of(run) == "bad-list"


def test_an_ack_of_another_view_is_refused() -> None:
    run = start()
    run.run({LIAR: Phase.ACKS})
    early = start()
    early.offer()
    early.send()
    early.send()
    early.mask()
    early.send(absent={LIAR})
    sends(early, Kind.ACK, b"v" * 32)
    assert code_of(early) == "bad-list"


@pytest.mark.parametrize(
    ("update_D", "weight", "words"),
    [
        (np.array([np.nan] * 6, np.float32), 1, "not finite"),
        (np.array([np.inf] * 6, np.float32), 1, "not finite"),
        (np.zeros(5, np.float32), 1, "5 coordinates, expected 6"),
        (np.zeros(6), 1, "float64"),
        (np.zeros(6, np.int64), 1, "int64"),
        (np.zeros(6, np.float32), 1025, "weight is 1025"),
        (np.zeros(6, np.float32), 0, "weight is 0"),
        (np.zeros(6, np.float32), None, "session is weighted"),
    ],
)
def test_a_worthless_update_never_leaves_and_the_site_may_mend_it(
    update_D: np.ndarray, weight: int | None, words: str
) -> None:
    weights = dict.fromkeys(TEN.ids, 2)
    run = server(TEN, session(TEN, num_coordinates=6, weighted=True, ring=Ring.W64), weights=weights)
    run.offer()
    run.send()
    run.send()
    site = run.sites[LIAR]
    with pytest.raises(InvalidUpdate, match=words):
        site.mask(update_D, weight)
    assert site.state.stage is Stage.DELIVERED
    run.mask()
    run.send()
    run.send()
    assert run.require_exact().total_weight == 20


# rows


def test_rows_other_than_the_survivors_are_refused() -> None:
    run = start()
    run.run()
    opening = open_sum(run.collection)
    rows = list(run.rows.items())
    for wrong in (rows[1:], [*rows, rows[0]], [(rows[0][0], rows[0][1][:-1]), *rows[1:]]):
        with pytest.raises(SecureSumFailed) as caught:
            add_up(run.described, opening, wrong)
        assert caught.value.reason == "bad-list"


def test_participants_outside_the_roster_make_no_collection() -> None:
    made = federation(9)
    with pytest.raises(ConfigError, match="not in the roster"):
        SumCollection(session(TEN), made.roster)


def test_no_one_can_mask_before_the_shares_are_there() -> None:
    run = start()
    run.offer()
    site: Site = run.sites[LIAR]
    assert site.mask(run.updates[LIAR]) is None
    assert site.refusal is not None
    assert site.refusal.code == "bad-message"
