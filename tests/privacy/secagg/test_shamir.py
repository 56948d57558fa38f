"""Sharing: any t shares give the secret, fewer say nothing, wrong ones are found out."""

from __future__ import annotations

from itertools import combinations

import pytest
from foedus.privacy.secagg.decoding import agreeing
from foedus.privacy.secagg.recovery import recover, surely_none
from foedus.privacy.secagg.shamir import PRIME, SHARE_BYTES, combine, outliers, share
from foedus.privacy.secrets import Secret
from hypothesis import given, settings
from hypothesis import strategies as st

SECRETS = st.one_of(st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32]))


def numbered(shares: tuple[Secret, ...]) -> dict[int, Secret]:
    return dict(enumerate(shares, 1))


def moved(value: Secret, error: int) -> Secret:
    number = (int.from_bytes(value.reveal_bytes(), "big") + error) % PRIME
    return Secret(number.to_bytes(SHARE_BYTES, "big"))


def test_the_modulus_is_the_least_prime_above_two_to_the_256() -> None:
    assert all(pow(base, PRIME - 1, PRIME) == 1 for base in (2, 3, 5, 7, 11, 13))
    assert not any(pow(3, number - 1, number) == 1 for number in range(2**256 + 1, PRIME))


def test_shares_lie_on_a_line_of_which_we_know_the_points() -> None:
    first, second, third = (int.from_bytes(one.reveal_bytes(), "big") for one in share(Secret(bytes(32)), 2, 3))
    assert second == 2 * first % PRIME
    assert third == 3 * first % PRIME


@settings(max_examples=50, deadline=None)
@given(secret=SECRETS, data=st.data())
def test_any_t_shares_give_the_secret(secret: bytes, data: st.DataObject) -> None:
    m = data.draw(st.integers(1, 40))
    t = data.draw(st.integers(1, m))
    shares = numbered(share(Secret(secret), t, m))
    assert all(len(one.reveal_bytes()) == SHARE_BYTES for one in shares.values())
    chosen = data.draw(st.permutations(list(shares)))[:t]
    assert combine({x: shares[x] for x in chosen}) == Secret(secret)


def test_fewer_shares_fit_every_secret() -> None:
    """With t - 1 shares, each candidate secret is reached by exactly one more share: nothing is ruled out."""
    shares = numbered(share(Secret(b"a" * 32), 3, 5))
    known = {1: shares[1], 2: shares[2]}
    # f(0), f(1), f(2) of a parabola are free of each other: f(3) = 3 f(2) - 3 f(1) + f(0).
    one, two = (int.from_bytes(known[x].reveal_bytes(), "big") for x in (1, 2))
    for candidate in (bytes(32), b"a" * 32, b"z" * 32):
        third = (3 * two - 3 * one + int.from_bytes(candidate, "big")) % PRIME
        assert combine({**known, 3: Secret(third.to_bytes(SHARE_BYTES, "big"))}) == Secret(candidate)


def test_two_sharings_of_one_secret_differ() -> None:
    assert share(Secret(b"a" * 32), 3, 5) != share(Secret(b"a" * 32), 3, 5)


def wrong_at(liars: set[int], shares: dict[int, Secret]) -> dict[int, Secret]:
    """Wrong shares whose errors cancel nowhere by chance."""
    return {x: moved(one, x**3 + 7) if x in liars else one for x, one in shares.items()}


@pytest.mark.parametrize("liars", [set(), {1}, {4}, {9}, {1, 2}, {1, 4}, {3, 7}])
def test_wrong_shares_are_left_out_and_named(liars: set[int]) -> None:
    secret = Secret(b"k" * 32)
    shares = wrong_at(liars, numbered(share(secret, 4, 9)))
    assert recover(shares, 4, lambda got: got == secret, colluders=2) == (secret, frozenset(liars))


def test_two_liars_whose_errors_cancel_put_no_blame_on_others() -> None:
    """At 0, the weights of the places 1, 2, 3 are 3, -3 and 1: the same error at 1 and 2 is not seen in the secret."""
    secret = Secret(b"k" * 32)
    honest = numbered(share(secret, 3, 6))
    shares = {**honest, 1: moved(honest[1], 5), 2: moved(honest[2], 5)}
    assert combine({x: shares[x] for x in (1, 2, 3)}) == secret
    assert outliers({x: shares[x] for x in (1, 2, 3)}, shares) == {4, 5, 6}  # whom a naive check would name
    assert recover(shares, 3, lambda got: got == secret, colluders=2) == (secret, frozenset({1, 2}))
    few = {x: shares[x] for x in (1, 2, 3, 4)}
    assert recover(few, 3, lambda got: got == secret, colluders=2) == (secret, frozenset())


def test_with_too_many_wrong_shares_there_is_no_secret() -> None:
    secret = Secret(b"k" * 32)
    shares = wrong_at({1, 2, 3, 4}, numbered(share(secret, 4, 7)))
    assert recover(shares, 4, lambda got: got == secret) is None


def test_known_liars_are_asked_last() -> None:
    secret, tried = Secret(b"k" * 32), []
    shares = wrong_at({1, 2, 3}, numbered(share(secret, 4, 7)))

    def is_right(got: Secret) -> bool:
        tried.append(got)
        return got == secret

    assert recover(shares, 4, is_right, distrusted=frozenset({1, 2, 3})) == (secret, frozenset({1, 2, 3}))
    assert len(tried) == 1


def test_every_subset_is_tried_once() -> None:
    shares, seen = numbered(share(Secret(b"k" * 32), 3, 6)), []
    recover({x: Secret(bytes([x]) * 33) for x in shares}, 3, lambda got: bool(seen.append(got)))
    assert len(seen) <= len(list(combinations(shares, 3)))


def test_outliers_are_those_off_the_polynomial() -> None:
    shares = numbered(share(Secret(b"k" * 32), 3, 6))
    good = {x: shares[x] for x in (2, 4, 6)}
    assert outliers(good, shares) == frozenset()
    assert outliers(good, {**shares, 5: moved(shares[5], 1)}) == {5}


@settings(max_examples=60, deadline=None)
@given(secret=SECRETS, data=st.data())
def test_decoding_finds_whom_to_believe(secret: bytes, data: st.DataObject) -> None:
    m = data.draw(st.integers(1, 24))
    t = data.draw(st.integers(1, m))
    spare = (m - t) // 2
    liars = set(data.draw(st.lists(st.integers(1, m), max_size=spare, unique=True)))
    errors = {x: data.draw(st.integers(1, PRIME - 1)) for x in sorted(liars)}
    shares = {x: moved(one, errors.get(x, 0)) for x, one in numbered(share(Secret(secret), t, m)).items()}
    honest = tuple(x for x in shares if x not in liars)
    assert agreeing(shares, t) == honest
    assert combine({x: shares[x] for x in honest}) == Secret(secret)
    got = recover(shares, t, lambda one: one == Secret(secret), colluders=spare)
    assert got == (Secret(secret), frozenset(liars))


def test_decoding_says_when_more_are_wrong_than_it_can_tell() -> None:
    shares = {
        x: moved(one, x**5 + 3) if x <= 4 else one for x, one in numbered(share(Secret(b"k" * 32), 4, 10)).items()
    }
    assert agreeing(shares, 4) == ()
    assert agreeing({x: Secret(bytes(33)) for x in range(1, 9)}, 3) == tuple(range(1, 9))


def test_nine_liars_among_fifty_are_named_at_once() -> None:
    """Subsets alone would have to be lucky: there are 50 over 31 of them."""
    secret, tried = Secret(b"k" * 32), []
    shares = wrong_at(set(range(1, 10)), numbered(share(secret, 31, 50)))

    def is_right(got: Secret) -> bool:
        tried.append(got)
        return got == secret

    assert recover(shares, 31, is_right, colluders=10) == (secret, frozenset(range(1, 10)))
    assert len(tried) <= 2


@pytest.mark.parametrize(
    ("num_shares", "threshold", "colluders", "sure"),
    [(10, 7, 2, True), (8, 7, 2, False), (9, 7, 2, True), (50, 31, 9, True), (50, 31, 10, False)],
)
def test_a_dealer_is_blamed_only_where_liars_cannot_be_the_cause(
    num_shares: int, threshold: int, colluders: int, sure: bool
) -> None:
    assert surely_none(num_shares, threshold, colluders) is sure
