"""The messages of computing on shares: one encoding each, read strictly, of known sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg.messages import Revealed, Unmask, Which, frame, max_message_bytes, signed_list
from foedus.privacy.secagg.sharing_messages import (
    Box,
    Boxes,
    Deal,
    Products,
    Selection,
    SumAnswer,
    digests_of,
    max_session_message_bytes,
    split_boxes,
    with_boxes,
)
from foedus.privacy.secagg.signing import Kind, Signed
from foedus.privacy.secrets import Secret
from foedus.privacy.sharing.field import P
from foedus.privacy.sharing.products import pair_count
from foedus.privacy.sharing.sketches import ROWS
from hypothesis import given
from hypothesis import strategies as st
from secure_sums import federation, session
from sketched_sums import sketched

IDS = st.binary(min_size=16, max_size=16)
DIGESTS = st.binary(min_size=32, max_size=32)
SID = b"s" * 32
BOXES = st.dictionaries(IDS, st.binary(max_size=40), max_size=4).map(
    lambda found: tuple(Box(other, found[other]) for other in sorted(found))
)
DEALS = st.builds(Deal, DIGESTS, st.dictionaries(IDS, DIGESTS, max_size=4))


def elements(count: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(st.integers(0, P - 1), min_size=count, max_size=count).map(lambda found: np.array(found, np.uint64))


def signed(kind: Kind, sender: bytes, body: bytes) -> Signed:
    return Signed(kind, SID, sender, body, bytes(64))


def refuses(read: Callable[[], object], code: str = "bad-message") -> None:
    with pytest.raises(SecureSumFailed) as caught:
        read()
    assert caught.value.reason == code


@given(DEALS, BOXES, st.data())
def test_a_deal_is_read_with_its_boxes_and_nothing_else(
    deal: Deal, boxes: tuple[Box, ...], data: st.DataObject
) -> None:
    assert Deal.from_bytes(deal.to_bytes()) == deal
    message = signed(Kind.DEAL, b"i" * 16, deal.to_bytes())
    written = with_boxes(message, boxes)
    assert split_boxes(written) == (message, boxes)
    cut = data.draw(st.integers(0, len(written) - 1))
    refuses(lambda: split_boxes(written[:cut]))
    refuses(lambda: split_boxes(written + b"\0"))
    other = signed(Kind.CONFIRM, b"i" * 16, b"")
    assert split_boxes(other.to_bytes()) == (other, ())
    refuses(lambda: split_boxes(with_boxes(other, ())))


def test_more_boxes_than_sites_are_not_read() -> None:
    boxes = tuple(Box(place.to_bytes(16, "big"), b"") for place in range(65))
    message = signed(Kind.DEAL, b"i" * 16, b"")
    assert split_boxes(with_boxes(message, boxes[:64])) == (message, boxes[:64])
    with pytest.raises(SecureSumFailed, match="there are 65 boxes, expected one a site: at most 64"):
        split_boxes(with_boxes(message, boxes))


@given(BOXES, BOXES, st.lists(IDS, max_size=3, unique=True))
def test_boxes_are_read_as_they_are_written(
    boxes: tuple[Box, ...], proofs: tuple[Box, ...], senders: list[bytes]
) -> None:
    agreements = tuple(signed(Kind.AGREE, sender, bytes(32)) for sender in sorted(senders))
    written = Boxes(agreements, boxes, proofs).to_bytes()
    assert Boxes.from_bytes(written, Kind.AGREE, SID) == Boxes(agreements, boxes, proofs)
    refuses(lambda: Boxes.from_bytes(written[:-1], Kind.AGREE, SID))
    if agreements:
        refuses(lambda: Boxes.from_bytes(written, Kind.AGREE, b"t" * 32), "bad-list")
        refuses(lambda: Boxes.from_bytes(written, Kind.CONFIRM, SID), "bad-list")
    if len(boxes) > 1:
        refuses(lambda: Boxes.from_bytes(Boxes(agreements, boxes[::-1]).to_bytes(), Kind.AGREE, SID), "bad-list")


@given(st.dictionaries(IDS, st.integers(0, 2**32 - 1), max_size=5))
def test_a_selection_is_read_as_it_is_written(weights: dict[bytes, int]) -> None:
    written = Selection(weights).to_bytes()
    assert Selection.from_bytes(written) == Selection(weights)
    refuses(lambda: Selection.from_bytes(written[:-1]))
    refuses(lambda: Selection.from_bytes(written + b"\0"))


def test_a_site_that_is_selected_twice_or_out_of_order_is_refused() -> None:
    twice = Selection({b"a" * 16: 1}).to_bytes()
    refuses(lambda: Selection.from_bytes(b"\0\0\0\2" + 2 * twice[4:]), "bad-list")


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 4), st.data())
def test_products_are_read_as_they_are_written(n: int, z: int, proofs: int, data: st.DataObject) -> None:
    parts = [data.draw(elements(count)) for count in (pair_count(n), n, z, proofs)]
    written = Products(*parts).to_bytes()
    found = Products.from_bytes(written, n, z, proofs)
    for part, read in zip(parts, (found.products_A, found.degrees_N, found.masks_Z, found.short_S), strict=True):
        assert np.array_equal(part, read)
    refuses(lambda: Products.from_bytes(written, n + 1, z, proofs))
    refuses(lambda: Products.from_bytes(written + b"\0", n, z, proofs))
    refuses(lambda: Products.from_bytes(P.to_bytes(8, "little") + written[8:], n, z, proofs))


@given(st.lists(st.binary(min_size=33, max_size=33), max_size=3), st.data())
def test_answers_of_sums_are_read_as_they_are_written(shares: list[bytes], data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 5))
    sum_L = data.draw(elements(length))
    unmask = Unmask(tuple(Revealed(bytes(16), Which.SEED, Secret(share)) for share in shares))
    written = SumAnswer(unmask, sum_L).to_bytes()
    found = SumAnswer.from_bytes(written, length)
    assert found.unmask == unmask
    assert np.array_equal(found.sum_L, sum_L)
    refuses(lambda: SumAnswer.from_bytes(written[:-1], length))
    refuses(lambda: SumAnswer.from_bytes(b"", 5))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("n", [5, 10, 64])
def test_the_longest_messages_are_within_the_bound_and_no_session_of_sums_has_it(n: int, strict: bool) -> None:
    made = federation(n)
    described = sketched(made, strict=strict)
    bound = max_session_message_bytes(described)
    box = bytes(8 * (ROWS + 1 + strict + pair_count(n) + 1) + 16)
    proof = bytes(8 * 128 * 23 + 16) if strict else b""
    boxes, proofs = ([Box(other, sealed) for other in made.ids[1:]] for sealed in (box, proof))
    deal = signed(Kind.DEAL, made.ids[0], Deal(SID, digests_of(boxes)).to_bytes())
    deals = [signed(Kind.DEAL, site, deal.body) for site in made.ids]
    agreements = tuple(signed(Kind.CONFIRM, site, SID) for site in made.ids)
    longest = [
        with_boxes(deal, boxes),
        with_boxes(signed(Kind.AGREE, made.ids[0], deal.body), proofs),
        frame(Kind.DEALS, SID, signed_list(deals)),
        frame(Kind.BOXES, SID, Boxes(agreements, tuple(boxes), tuple(proofs) if strict else ()).to_bytes()),
        signed(Kind.PRODUCTS, made.ids[0], bytes(8 * (pair_count(n) + 3 * n))).to_bytes(),
    ]
    assert max(len(message) for message in longest) <= bound
    assert bound < 4_000_000
    assert max_session_message_bytes(session(made)) == max_message_bytes(n)
