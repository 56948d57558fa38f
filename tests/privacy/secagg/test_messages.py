"""Messages: one encoding each, strict reading, sizes known before anything is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg.messages import (
    KEYS_BYTES,
    SEALED_BYTES,
    Complaint,
    Deliver,
    Keys,
    Offer,
    Revealed,
    Sealed,
    Shares,
    Unmask,
    Which,
    frame,
    max_message_bytes,
    read_signed_list,
    require_sorted,
    signed_list,
    unframe,
)
from foedus.privacy.secagg.signing import Kind, Signed
from foedus.privacy.secrets import Secret
from hypothesis import given
from hypothesis import strategies as st

IDS = st.binary(min_size=16, max_size=16)
SEALED = st.builds(Sealed, IDS, st.binary(min_size=SEALED_BYTES, max_size=SEALED_BYTES))
REVEALED = st.builds(Revealed, IDS, st.sampled_from(Which), st.builds(Secret, st.binary(min_size=33, max_size=33)))
KEY = st.binary(min_size=32, max_size=32)
BODIES: dict[type[Any], st.SearchStrategy[Any]] = {
    Offer: st.builds(Offer, st.binary(max_size=99), st.binary(max_size=99)),
    Keys: st.builds(Keys, KEY, KEY, KEY),
    Shares: st.builds(Shares, st.lists(SEALED, max_size=4).map(tuple)),
    Deliver: st.builds(Deliver, st.lists(IDS, max_size=4).map(tuple), st.lists(SEALED, max_size=4).map(tuple)),
    Complaint: st.builds(Complaint, st.lists(IDS, max_size=4).map(tuple)),
    Unmask: st.builds(Unmask, st.lists(REVEALED, max_size=4).map(tuple)),
}
SIGNED = st.builds(Signed, st.sampled_from(Kind), KEY, IDS, st.binary(max_size=80), st.binary(min_size=64, max_size=64))


@pytest.mark.parametrize("body", list(BODIES))
@given(data=st.data())
def test_what_is_written_is_read_and_nothing_else(body: Any, data: st.DataObject) -> None:
    message = data.draw(BODIES[body])
    written = message.to_bytes()
    assert body.from_bytes(written) == message
    cut = data.draw(st.integers(0, max(0, len(written) - 1)))
    for wrong in (written[:cut], written + b"\0"):
        if wrong != written:
            with pytest.raises(SecureSumFailed) as caught:
                body.from_bytes(wrong)
            assert caught.value.reason == "bad-message"


@pytest.mark.parametrize(
    "read",
    [*(body.from_bytes for body in BODIES), Signed.from_bytes, lambda data: read_signed_list(data, Kind.KEYS, b"")],
)
@given(noise=st.binary(max_size=400))
def test_noise_is_refused_or_read_but_never_anything_else(read: Callable[[bytes], Any], noise: bytes) -> None:
    try:
        read(noise)
    except SecureSumFailed as error:
        assert error.reason in ("bad-message", "bad-list")  # noqa: PT017 (that it raises nothing else is the test)


@given(SIGNED)
def test_signed_messages_are_read_as_written(message: Signed) -> None:
    assert Signed.from_bytes(message.to_bytes()) == message
    with pytest.raises(SecureSumFailed):
        Signed.from_bytes(message.to_bytes()[:-1])


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_a_list_is_made() -> None:
    huge = (2**32 - 1).to_bytes(4, "big")
    for read in (Shares.from_bytes, Complaint.from_bytes, Unmask.from_bytes):
        with pytest.raises(SecureSumFailed, match="4294967295 items"):
            read(huge + b"x" * 50)


def test_lists_are_of_one_kind_one_session_and_in_order() -> None:
    def message(kind: Kind, sid: bytes, sender: bytes) -> Signed:
        return Signed(kind, sid, sender, b"", b"x" * 64)

    one, two = message(Kind.ACK, b"s" * 32, b"a" * 16), message(Kind.ACK, b"s" * 32, b"b" * 16)
    assert read_signed_list(signed_list([one, two]), Kind.ACK, b"s" * 32) == (one, two)
    wrong_lists = (
        [two, one],
        [one, one],
        [one, message(Kind.KEYS, b"s" * 32, b"b" * 16)],
        [message(Kind.ACK, b"t" * 32, b"a" * 16)],
    )
    for wrong in wrong_lists:
        with pytest.raises(SecureSumFailed) as caught:
            read_signed_list(signed_list(wrong), Kind.ACK, b"s" * 32)
        assert caught.value.reason == "bad-list"
    with pytest.raises(SecureSumFailed) as caught:
        read_signed_list(signed_list([one, one]), Kind.ACK, b"s" * 32)
    assert caught.value.blamed == (b"a" * 16,)


def test_frames() -> None:
    assert unframe(frame(Kind.DELIVER, b"s" * 32, b"body")) == (Kind.DELIVER, b"s" * 32, b"body")
    for wrong in (b"", b"\x05" + b"s" * 31, b"\xff" + b"s" * 32):
        with pytest.raises(SecureSumFailed):
            unframe(wrong)


def test_the_greatest_message_of_a_session_is_within_the_bound() -> None:
    n = 20
    keys = [Signed(Kind.KEYS, b"s" * 32, bytes([i]) * 16, b"k" * KEYS_BYTES, b"x" * 64) for i in range(n)]
    ids = tuple(bytes([i]) * 16 for i in range(n))
    shares = tuple(Sealed(site, b"c" * SEALED_BYTES) for site in ids)
    revealed = tuple(Revealed(site, Which.SEED, Secret(b"s" * 33)) for site in ids)
    for body in (
        signed_list(keys),
        Shares(shares).to_bytes(),
        Deliver(ids, shares).to_bytes(),
        Unmask(revealed).to_bytes(),
    ):
        whole = Signed(Kind.SHARES, b"s" * 32, ids[0], body, b"x" * 64).to_bytes()
        assert len(whole) <= max_message_bytes(n)


@given(st.lists(IDS, max_size=6).flatmap(lambda ids: st.permutations(ids + ids[:2])))
def test_ids_out_of_order_are_refused_and_those_twice_there_named(ids: list[bytes]) -> None:
    twice = tuple(sorted({site for site in ids if ids.count(site) > 1}))
    if not twice and ids == sorted(ids):
        require_sorted(ids, "the list")
        return
    with pytest.raises(SecureSumFailed) as caught:
        require_sorted(ids, "the list")
    assert (caught.value.reason, caught.value.blamed) == ("bad-list", twice)


def test_a_long_list_out_of_order_costs_no_more_than_its_length() -> None:
    compared = []

    class Id(bytes):
        __hash__ = bytes.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return bytes.__eq__(self, other)  # type: ignore[arg-type]

    ids = [Id(place.to_bytes(16, "big")) for place in reversed(range(500))]
    with pytest.raises(SecureSumFailed):
        require_sorted(ids, "the list")
    assert len(compared) <= 4 * len(ids)
