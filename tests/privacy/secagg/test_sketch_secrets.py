"""No share, sketch, product or update of a session of sketches shows in a repr, a log or on the wire."""

from __future__ import annotations

import io
import logging
from typing import Any

import numpy as np
import pytest
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.sharing_messages import Products
from foedus.privacy.secagg.sharing_opening import open_selected
from foedus.privacy.secagg.signing import Kind, Signed
from foedus.privacy.secagg.sketch_terms import shift_of
from foedus.privacy.secagg.sketching import sketch_of
from foedus.privacy.sharing.sketches import coarse
from secure_sums import federation
from sketched_sums import PHASES, SECRET, SketchServer, sketch_server, sketched

TEN = federation(10)


@pytest.fixture(scope="module")
def seen() -> tuple[SketchServer, set[bytes], str]:
    """A run with a drop-out and a liar; the secrets in it, as bytes; everything that could be printed on the way."""
    run = sketch_server(TEN, sketched(TEN))
    secrets: set[bytes] = {SECRET.reveal_bytes()}
    log = io.StringIO()
    logger, handler = logging.getLogger("sketches-under-test"), logging.StreamHandler(log)
    logger.addHandler(handler)

    def look(*more: Any) -> None:
        for site in run.sites.values():
            if site.stored is None:
                continue
            state = site.state
            secrets.update(one.reveal_bytes() for one in (state.seal_key, state.mask_key, state.seed, state.rounding))
            for item in state.held:
                secrets.update((item.seed_share.reveal_bytes(), item.mask_share.reveal_bytes()))
            if state.sharing is not None:
                secrets.add(state.sharing.update_digest.reveal_bytes())
                secrets.add(state.sharing.own.reveal_bytes())
                secrets.update(share.reveal_bytes() for _, share in state.sharing.shares)
            logger.warning("%r %s %r", state, site.stored, site.refusal)
        logger.warning("%r %r", run.collection, more)

    for phase in PHASES[:5]:
        run.to(phase, {TEN.ids[3]: Phase.AGREEMENTS})
        look()
    run.send_changed({TEN.ids[6]: lambda body: b"\1" + body[1:]})
    look(*run.collection.products.values())
    run.to(Phase.ACKS)
    look(run.collection.judged, run.collection.dealing)
    run.to(Phase.SUMS)
    opening = open_selected(run.collection)
    secrets.update(seed.reveal_bytes() for seed in (*opening.plus, *opening.minus))
    look(opening, run.require_exact(), run.refusals)
    logger.removeHandler(handler)
    return run, {secret for secret in secrets if secret}, log.getvalue()


def forms(secret: bytes) -> list[str]:
    """What the start of a secret could look like in a text: as Python writes bytes, in hex, as numbers."""
    head = secret[:24]
    numbers = [int.from_bytes(secret[at : at + 8], "little") for at in range(0, len(secret) - 7, 8)][:3]
    return [repr(head)[2:-1], head.hex(), *(str(one) for one in numbers if one > 10**12)]


def test_nothing_that_prints_shows_a_secret(seen: tuple[SketchServer, set[bytes], str]) -> None:
    _, secrets, text = seen
    assert len(secrets) > 10 * (4 + 2 * 10 + 2) + 9 * 10
    assert "Secret(…)" in text
    for secret in secrets:
        assert not any(form in text for form in forms(secret))


def test_nothing_that_prints_shows_a_sketch_a_product_or_a_distance(
    seen: tuple[SketchServer, set[bytes], str],
) -> None:
    run, _, text = seen
    judged, described = run.collection.judged, run.described
    assert judged is not None
    for site in judged.sites:
        sketch_S = coarse(sketch_of(described, run.collection.view, run.plain[site]), shift_of(described))
        assert repr(sketch_S[:3])[7:-2] not in text
        assert str(int(sketch_S @ sketch_S)) not in text
    for distance in judged.squared_PP[judged.squared_PP > 0]:
        assert f"{distance:.1f}" not in text
    for answer in run.collection.products.values():
        assert not any(str(int(element)) in text for element in answer.products_A)


def test_the_control_arm_finds_what_is_there(seen: tuple[SketchServer, set[bytes], str]) -> None:
    run, _, _ = seen
    answer = next(iter(run.collection.products.values()))
    assert str(int(answer.products_A[0])) in repr(answer.products_A[:2])
    assert any(form in repr([b"k" * 32]) for form in forms(b"k" * 32))
    assert "products_A" not in repr(answer)


def test_before_the_sum_no_share_of_a_sketch_is_on_the_wire(seen: tuple[SketchServer, set[bytes], str]) -> None:
    run, secrets, _ = seen
    before = b"".join(message for site in run.sites.values() for message in site.sent if message[0] != Kind.SUM)
    for secret in secrets:
        assert secret[:64] not in before


def test_what_holders_answer_are_masked_products(seen: tuple[SketchServer, set[bytes], str]) -> None:
    run, _, _ = seen
    judged, num_masking = run.collection.judged, len(run.collection.dealing.mask_dealers)
    assert judged is not None
    for site in run.sites.values():
        for message in site.sent:
            if message[0] == Kind.PRODUCTS:
                answer = Products.from_bytes(Signed.from_bytes(message).body, len(run.collection.deals), num_masking, 0)
                assert np.unique(answer.products_A).size == answer.products_A.size
                assert (answer.products_A > 1 << 50).mean() > 0.9  # sketches' products are below 2^38
