import base64
import json
import zlib
from dataclasses import replace

import pytest
from foedus.errors import ConfigError
from foedus.privacy.certificates import new_authority
from foedus.privacy.secrets import new_token
from foedus.protos.address import split_address
from foedus.protos.invitation import Invitation
from hypothesis import given
from hypothesis import strategies as st

AUTHORITY = new_authority("hearts", 1_800_000_000.0, 86_400.0)[1]
INVITATION = Invitation("fed.example.org:8443", "berlin", "site", AUTHORITY, new_token().reveal(), 1.8e9)


def pack(values) -> str:
    return "foedus1." + base64.urlsafe_b64encode(zlib.compress(json.dumps(values).encode())).decode().rstrip("=")


def unpacked() -> dict:
    text = INVITATION.encode().removeprefix("foedus1.")
    return json.loads(zlib.decompress(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def test_an_invitation_is_one_short_line_and_survives_it():
    text = INVITATION.encode()
    assert text.isascii()
    assert not any(character.isspace() for character in text)
    assert len(text) < 2000
    assert Invitation.decode(f"  {text}\n") == INVITATION


# Written by a foedus that knew no roster key.
OLD = (
    "foedus1.eNqrVkpMSSlKLS5WslJKS03RS61IzC3ISdXLL0q3sjAxMVbSUcpLzE0FyialFuVk5gH5Rfk5IH5xZkkqkJdYWpKRX5RZUgkUCnD1"
    "jQGpKE5NLkotAakxBjN0lFIrCjKBtihZGVoYQIGeQS0A9_UnCQ"
)
OLD_JSON = (
    b'{"address":"fed.example.org:8443","name":"berlin","role":"site","authority":"PEM\\n","secret":"s3cret",'
    b'"expires":1800000000.0}'
)
WITHOUT_KEY = Invitation("fed.example.org:8443", "berlin", "site", b"PEM\n", "s3cret", 1.8e9)
ROSTER_KEY = bytes(range(32))


def inflated(text: str) -> bytes:
    packed = text.removeprefix("foedus1.")
    return zlib.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))


def test_an_invitation_without_a_roster_key_is_the_old_one_byte_for_byte():
    """Of what was compressed: compressors differ."""
    assert Invitation.decode(OLD) == WITHOUT_KEY
    assert inflated(WITHOUT_KEY.encode()) == inflated(OLD) == OLD_JSON


def test_a_roster_key_travels_in_hex():
    invitation = replace(INVITATION, roster_key=ROSTER_KEY)
    assert Invitation.decode(invitation.encode()) == invitation
    assert json.loads(inflated(invitation.encode())) == {**unpacked(), "roster_key": ROSTER_KEY.hex()}
    assert len(invitation.encode()) < 2000


@pytest.mark.adversarial
@pytest.mark.parametrize("value", [None, 1, [], "ab" * 31, "ab" * 33, "AB" * 32, "zz" * 32, "ab" * 32 + "\n"])
def test_what_is_no_roster_key_is_refused(value):
    with pytest.raises(ConfigError, match="damaged"):
        Invitation.decode(pack({**unpacked(), "roster_key": value}))


def test_an_unknown_version_is_refused():
    with pytest.raises(ConfigError, match="does not start with"):
        Invitation.decode(INVITATION.encode().replace("foedus1.", "foedus2."))


def test_an_invitation_does_not_print_its_secret():
    assert INVITATION.secret not in repr(INVITATION)


def test_every_truncation_is_refused():
    text = INVITATION.encode()
    for length in range(len(text)):
        with pytest.raises(ConfigError):
            Invitation.decode(text[:length])


@given(st.data())
def test_a_changed_character_is_refused_or_harmless(data):
    text = INVITATION.encode()
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(exclude_characters=text[at]))
    try:
        decoded = Invitation.decode(text[:at] + other + text[at + 1 :])
    except ConfigError as refusal:
        message = f"{refusal} {refusal.hint}"
    else:
        message = ""
        assert decoded == INVITATION  # a change in the padding bits of the last character
    assert INVITATION.secret not in message


@pytest.mark.adversarial
@pytest.mark.parametrize(
    "change",
    [{"role": "server"}, {"role": 3}, {"address": "nowhere"}, {"address": "a:0"}, {"expires": "soon"},
     {"expires": True}, {"expires": 1e999}, {"secret": None}, {"extra": 1}, {"name": "é"}],
)  # fmt: skip
def test_wrong_values_are_refused(change):
    assert Invitation.decode(pack(unpacked())) == INVITATION
    with pytest.raises(ConfigError):
        Invitation.decode(pack({**unpacked(), **change}))


@pytest.mark.adversarial
def test_a_bomb_does_not_inflate():
    bomb = "foedus1." + base64.urlsafe_b64encode(zlib.compress(b" " * 5_000_000, 9)).decode()
    assert len(bomb) < 8192
    for text in (bomb, "foedus1." + "A" * 9000, pack(["a"] * 1000), pack(None)):
        with pytest.raises(ConfigError):
            Invitation.decode(text)


@pytest.mark.parametrize(
    ("address", "parts"),
    [("localhost:1", ("localhost", 1)), ("10.0.0.1:65535", ("10.0.0.1", 65535)), ("[::1]:8443", ("::1", 8443)),
     ("a-b.example.org.:443", ("a-b.example.org.", 443))],
)  # fmt: skip
def test_addresses(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address",
    ["", "a", ":1", "a:", "a:0", "a:65536", "a:1x", "::1:1", "http://a:1", "dns:///a:1", "-a:1", "a b:1", "a:١"],
)
def test_what_is_no_address(address):
    with pytest.raises(ConfigError, match="not the address"):
        split_address(address)
