import copy
import pickle

import pytest
from foedus.privacy.secrets import Secret, matches, new_token, token_hash


def test_a_secret_never_prints():
    secret = Secret("hunter2")
    for text in (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>40}",
        str([secret]),
        str({1: secret}),
    ):
        assert "hunter2" not in text
    assert secret.reveal() == "hunter2"
    assert secret.reveal_bytes() == b"hunter2"


@pytest.mark.parametrize("escape", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_is_neither_pickled_nor_copied(escape):
    with pytest.raises(TypeError, match="never pickled"):
        escape(Secret("x"))


def test_secrets_compare_by_value_and_only_with_secrets():
    assert Secret("a") == Secret(b"a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert not Secret("")
    with pytest.raises(TypeError):
        hash(Secret("a"))


def test_tokens_are_long_fresh_and_known_by_their_hash():
    first, second = new_token(), new_token()
    assert first != second
    assert len(first.reveal()) == 43  # 32 bytes in base64url without padding
    assert matches(first, token_hash(first))
    assert not matches(second, token_hash(first))
    assert not matches(first, "")
    assert not matches(first, "é")


def test_the_token_hash_is_plain_sha256():
    assert token_hash(Secret("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
