"""No secret shows in a repr, a message of an error, a log or a byte on the wire."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.keys import derive, loaded, pair_mask, self_mask
from foedus.privacy.secagg.messages import Keys
from foedus.privacy.secagg.opening import open_sum
from foedus.privacy.secagg.state import SiteState
from foedus.privacy.secrets import Secret
from secure_sums import Server, federation, server, session

TEN = federation(10)


def forms(secret: bytes) -> list[bytes]:
    """What a secret could look like in a text: raw, as Python writes bytes, in hex, as a number."""
    shown = [repr(secret)[2:-1], secret.hex(), str(int.from_bytes(secret, "big")), str(list(secret))[1:-1]]
    return [secret, *(text.encode() for text in shown)]


def collected() -> tuple[Server, list[bytes], list[Any]]:
    """A run with a drop-out; every secret in it; everything that could be printed on the way."""
    run = server(TEN, session(TEN, num_coordinates=600))
    found: list[bytes] = []
    shown: list[Any] = []

    def look() -> None:
        for site in run.sites.values():
            if site.stored is None:
                continue
            state = site.state
            found.extend(secrets_of(state))
            shown.extend([state, site.stored, site.refusal])
        shown.extend([run.collection, run.collection.descriptor, run.outbox and None])

    run.offer()
    look()
    run.send()
    look()
    run.send()
    look()
    run.mask(absent={TEN.ids[3]})
    look()
    run.send()
    look()
    run.send()
    look()
    opening = open_sum(run.collection)
    found.extend(seed.reveal_bytes() for seed in (*opening.plus, *opening.minus))
    shown.extend([opening, run.require_exact()])
    return run, sorted({secret for secret in found if secret}), shown


def secrets_of(state: SiteState) -> Iterator[bytes]:
    for secret in (state.seal_key, state.mask_key, state.seed, state.rounding):
        yield secret.reveal_bytes()
    for item in state.held:
        yield item.seed_share.reveal_bytes()
        yield item.mask_share.reveal_bytes()
    if not state.mask_key:
        return
    sid = state.descriptor.sid
    yield self_mask(sid, state.seed, state.site).reveal_bytes()
    for message in state.keys:
        if message.sender != state.site:
            keys = Keys.from_bytes(message.body)
            yield pair_mask(sid, loaded(state.mask_key), keys.mask_key, state.site, message.sender).reveal_bytes()


@pytest.fixture(scope="module")
def seen() -> tuple[Server, list[bytes], list[Any]]:
    return collected()


def test_nothing_that_prints_shows_a_secret(seen: tuple[Server, list[bytes], list[Any]]) -> None:
    _, secrets, shown = seen
    assert len(secrets) == 10 * (4 + 2 * 10 + 1) + 45  # of each site its own, the shares it holds; and of each pair
    log = io.StringIO()
    logger = logging.getLogger("secure-sums-under-test")
    handler = logging.StreamHandler(log)
    logger.addHandler(handler)
    try:
        for value in shown:
            logger.warning("%r %s", value, value)
    finally:
        logger.removeHandler(handler)
    text = log.getvalue().encode()
    assert b"Secret" in text
    for secret in secrets:
        assert not any(form in text for form in forms(secret))


def test_the_control_arm_finds_what_is_there() -> None:
    assert any(form in repr([b"k" * 32]).encode() for form in forms(b"k" * 32))


def test_up_to_the_reveal_no_secret_is_on_the_wire(seen: tuple[Server, list[bytes], list[Any]]) -> None:
    run, secrets, _ = seen
    revealed = [message for site in run.sites.values() for message in site.sent if message[0] == Phase.UNMASK]
    before = b"".join(message for site in run.sites.values() for message in site.sent if message[0] != Phase.UNMASK)
    assert len(revealed) == 9
    for secret in secrets:
        assert secret not in before
    for site in run.sites.values():
        if site.words is not None:
            assert run.plain[site.id].tobytes() != site.words.tobytes()


def test_the_server_sees_one_secret_of_each_site_and_not_the_other(
    seen: tuple[Server, list[bytes], list[Any]],
) -> None:
    """Of survivors the seed, of drop-outs the mask key: from what it has, the other kind cannot be put together."""
    run, _, _ = seen
    for unmask in run.collection.unmask.values():
        for item in unmask.shares:
            assert (item.owner in run.collection.masked) == (item.which.name == "SEED")


def secret_fields(value: Any) -> Iterator[str]:
    for item in fields(value):
        if "Secret" in str(item.type):
            yield item.name


def test_secret_fields_are_of_the_type_that_does_not_print() -> None:
    for name in secret_fields(SiteState):
        assert name in {"seal_key", "mask_key", "seed", "rounding"}
    assert is_dataclass(SiteState)
    assert "Secret(…)" in repr(derive(b"s" * 32, Secret(b"i" * 32), "mask"))


def test_no_update_shows(seen: tuple[Server, list[bytes], list[Any]]) -> None:
    run, _, shown = seen
    text = repr(shown)
    for site, row in run.rows.items():
        assert repr(float(run.updates[site][0]))[:8] not in text
        assert not np.array_equal(run.plain[site], row)
        assert run.plain[site][:8].tobytes() not in row.tobytes()
