"""The roster: only the operator's signature counts, and no site goes back to an older one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.errors import ConfigError, SecureSumFailed
from foedus.privacy.secagg.roster import Roster, signed_roster
from foedus.privacy.secagg.signing import site_id
from hypothesis import given
from hypothesis import strategies as st
from secure_sums import FEDERATION, federation, public

MADE = federation(4)
PINNED = public(MADE.operator)


def test_a_signed_roster_is_read_as_it_was_written() -> None:
    roster = Roster.from_bytes(MADE.roster.to_bytes())
    assert roster == MADE.roster
    assert roster.digest == MADE.roster.digest
    assert tuple(roster.by_id) == MADE.ids == tuple(sorted(map(site_id, roster.public_keys)))
    roster.verify(PINNED, federation=FEDERATION, at_least=1)


def test_the_server_cannot_sign_one() -> None:
    forged = signed_roster(Ed25519PrivateKey.generate(), FEDERATION, 2, MADE.roster.public_keys)
    with pytest.raises(SecureSumFailed, match="pinned at enrolment") as caught:
        forged.verify(PINNED, federation=FEDERATION, at_least=1)
    assert caught.value.reason == "bad-signature"


@pytest.mark.parametrize(
    "changes", [{"version": 2}, {"federation": "lungs"}, {"public_keys": MADE.roster.public_keys[1:]}]
)
def test_nothing_can_be_changed_under_the_signature(changes: dict[str, object]) -> None:
    with pytest.raises(SecureSumFailed) as caught:
        replace(MADE.roster, **changes).verify(
            PINNED, federation="lungs" if "federation" in changes else FEDERATION, at_least=0
        )  # type: ignore[arg-type]
    assert caught.value.reason == "bad-signature"


def test_an_older_or_a_stranger_s_roster_is_refused() -> None:
    for federation_name, at_least, words in ((FEDERATION, 2, "version 1, and version 2"), ("lungs", 1, "'hearts'")):
        with pytest.raises(SecureSumFailed, match=words) as caught:
            MADE.roster.verify(PINNED, federation=federation_name, at_least=at_least)
        assert caught.value.reason == "policy"


def test_keys_are_in_order_and_each_once() -> None:
    keys = MADE.roster.public_keys
    for wrong in (keys[::-1], keys[:1] * 2, (b"short",)):
        with pytest.raises(ConfigError, match="sorted by site id"):
            Roster(FEDERATION, 1, wrong)


@given(st.binary(max_size=300))
def test_noise_is_refused_in_a_typed_way(noise: bytes) -> None:
    try:
        roster = Roster.from_bytes(noise)
    except SecureSumFailed:
        return
    with pytest.raises(SecureSumFailed):
        roster.verify(PINNED, federation=FEDERATION, at_least=0)
