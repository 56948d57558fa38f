"""The descriptor: golden bytes, one encoding, and an id that everything hangs on."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any

import pytest
from foedus.errors import ConfigError, SecureSumFailed
from foedus.privacy.secagg.descriptor import Mode, Noise, SessionDescriptor, next_attempt
from foedus.privacy.secagg.prg import Ring, Suite
from hypothesis import given
from hypothesis import strategies as st
from secure_sums import federation, session

MADE = federation(6)
BASE = session(MADE)


def test_golden_bytes() -> None:
    plain = replace(
        BASE,
        roster_digest=b"r" * 32,
        participants=(b"a" * 16, b"b" * 16),
        layout_digest=b"l" * 32,
        model_digest=b"m" * 32,
        config_digest=b"c" * 32,
    )
    expected = (
        "0001" + "01" + "06" + b"hearts".hex() + "06" + b"spring".hex() + "0000000000000003" + "00000001" + "01"
        + (b"r" * 32).hex() + "00000002" + (b"a" * 16 + b"b" * 16).hex() + "0000000000000028"
        + (b"l" * 32 + b"m" * 32 + b"c" * 32).hex() + "20" + "4020000000000000" + "4090000000000000" + "00"
        + "00000000" + "00000005" + "00000000" + "00000002" + "04" + b"mean".hex() + "00000005" + "00000005"
        + "00000005" + "0000003c" + "0000003c" + "00000258" + "0000003c" + "0000003c"
        + "00" * 31
    )  # fmt: skip
    assert plain.to_bytes().hex() == expected
    assert plain.sid == hashlib.sha256(b"fl-sa/v1/sid" + bytes.fromhex(expected)).digest()


@given(
    round_=st.integers(0, 2**63 - 1),
    attempt=st.integers(1, 2**32 - 1),
    run=st.text(st.characters(codec="utf-8"), max_size=60),
    scale=st.floats(1e-3, 1e6),
    ring=st.sampled_from(list(Ring)),
    suite=st.sampled_from(list(Suite)),
    weighted=st.booleans(),
    num_sites=st.integers(1, 6),
)
def test_what_is_written_is_read(
    round_: int, attempt: int, run: str, scale: float, ring: Ring, suite: Suite, weighted: bool, num_sites: int
) -> None:
    made = replace(
        BASE,
        round=round_,
        attempt=attempt,
        run=run,
        scale=scale,
        ring=ring,
        suite=suite,
        weighted=weighted,
        participants=BASE.participants[:num_sites],
    )
    data = made.to_bytes()
    assert SessionDescriptor.from_bytes(data) == made
    for cut in (data[:-1], data + b"\0"):
        with pytest.raises(SecureSumFailed):
            SessionDescriptor.from_bytes(cut)


def test_every_field_is_in_the_id() -> None:
    other: dict[str, Any] = {
        "suite": Suite.CHACHA20,
        "federation": "lungs",
        "run": "autumn",
        "participants": BASE.participants[1:],
        "ring": Ring.W64,
        "weighted": True,
        "rule": "median",
        "deadlines_seconds": (1, 2, 3, 4, 5),
        "degree": 2,
        "mode": Mode.GROUPS,
        "regroups": True,
        "strict": True,
        "noise_multiplier": 2.0,
    }
    noisy = replace(BASE, noise=Noise.SKELLAM, noise_multiplier=1.0)
    ids = {BASE.sid, noisy.sid, replace(noisy, noise=Noise.DISCRETE_GAUSSIAN).sid}
    for field in fields(BASE):
        if field.name == "noise":
            continue
        old = getattr(BASE, field.name)
        new = other[field.name] if field.name in other else bytes(32) if isinstance(old, bytes) else old + 1
        changed = noisy if field.name == "noise_multiplier" else BASE
        ids.add(replace(changed, **{field.name: new}).sid)
    assert len(ids) == len(fields(BASE)) + 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"participants": BASE.participants[::-1]}, "sorted"),
        ({"participants": BASE.participants[:1] * 2}, "named twice"),
        ({"participants": (b"short",)}, "16 bytes"),
        ({"participants": ()}, "0 participants"),
        ({"model_digest": b""}, "32 bytes"),
        ({"clip_norm": 0.0}, "clip norm is 0"),
        ({"clip_norm": float("nan")}, "clip norm is nan"),
        ({"scale": float("inf")}, "scale is inf"),
        ({"scale": -1.0}, "scale is -1"),
        ({"scale": 2.0**50}, "scale times clip norm"),
        ({"degree": 3}, "odd"),
        ({"attempt": 0}, "attempt"),
        ({"round": -1}, "round"),
        ({"colluders": -1}, "count"),
        ({"run": "r" * 300}, "longer than 255"),
        ({"num_coordinates": 0}, "0 coordinates"),
        ({"deadlines_seconds": (1,)}, "deadlines"),
    ],
)
def test_fields_that_cannot_be_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(BASE, **changes)


@pytest.mark.parametrize(("place", "value"), [(1, 9), (2, 7)])  # version, suite
def test_what_does_not_exist_here_is_against_the_policy(place: int, value: int) -> None:
    data = bytearray(BASE.to_bytes())
    data[place] = value
    with pytest.raises(SecureSumFailed) as caught:
        SessionDescriptor.from_bytes(bytes(data))
    assert caught.value.reason == "policy"


@given(st.binary(max_size=600))
def test_noise_is_refused_in_a_typed_way(noise: bytes) -> None:
    with pytest.raises(SecureSumFailed):
        SessionDescriptor.from_bytes(noise)


def test_the_next_attempt_goes_on_without_the_blamed() -> None:
    after = next_attempt(BASE, without=BASE.participants[:1])
    assert after.participants == BASE.participants[1:]
    assert after.attempt == 2
    assert after.threshold == (5 + BASE.colluders) // 2 + 1
    assert after.sid != BASE.sid
