"""Noise inside sums, over real messages: as much as agreed, from the stored seed alone, refused where it is wrong."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from foedus.errors import ConfigError, InvalidUpdate, SecureSumFailed
from foedus.privacy import inverse
from foedus.privacy.events import DiscreteGaussianSum, NoiselessRelease, SkellamSum
from foedus.privacy.secagg import descriptor as descriptor_module
from foedus.privacy.secagg.charges import charge, release
from foedus.privacy.secagg.codes import AbortCode, Refusal
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.descriptor import Mode, Noise, SessionDescriptor
from foedus.privacy.secagg.keys import derive
from foedus.privacy.secagg.masking import mask, plain_words
from foedus.privacy.secagg.noise import add_noise, finest_noisy_scale, noise_table, site_variance, total_variance
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Keystream, Ring, piece_buffer
from foedus.privacy.secagg.quantise import norm_bound, smallest_ring
from foedus.privacy.secagg.state import Stage
from foedus.privacy.secrets import Secret
from secure_groups import grouped, groups
from secure_sums import Site, federation, server, session

TEN = federation(10)
SEED = Secret(b"n" * 32)
NOISY = {"noise": Noise.SKELLAM, "noise_multiplier": 0.5}
PACKAGE = Path(descriptor_module.__file__).parent


def noisy(**changes: object) -> SessionDescriptor:
    return session(TEN, **(NOISY | changes))


def noise_of(described: SessionDescriptor, seed: Secret = SEED) -> np.ndarray:
    words = np.zeros(described.num_words, described.ring.unsigned)
    add_noise(words, described, seed)
    return words.view(described.ring.signed).astype(np.int64)


@pytest.mark.parametrize("noise", [Noise.SKELLAM, Noise.DISCRETE_GAUSSIAN])
@pytest.mark.parametrize("ring", [Ring.W32, Ring.W64])
def test_a_sum_is_that_of_the_noisy_updates_bit_for_bit(noise: Noise, ring: Ring) -> None:
    described = noisy(noise=noise, ring=ring, num_coordinates=300)
    run = server(TEN, described)
    run.run({TEN.ids[2]: Phase.MASKED, TEN.ids[5]: Phase.UNMASK})
    found = run.require_exact()  # against plain_words, which hold the noise
    assert len(found.survivors) == 9
    bare = replace(described, noise=Noise.NONE, noise_multiplier=0.0)
    plain = sum(
        plain_words(bare, run.updates[site], SEED).view(ring.signed).astype(np.int64) for site in found.survivors
    )
    spread = (found.sum_D - plain).astype(float)
    expected = 9 * float(site_variance(described)) + 9 / 2  # noise, and two roundings of either at most a quarter
    assert spread.var() == pytest.approx(expected, rel=0.35)
    assert abs(spread.mean()) < 5 * math.sqrt(expected / 300)


def test_each_site_adds_its_part_for_the_fewest_honest_sites() -> None:
    described = noisy(clip_norm=8.0, scale=1024.0, min_survivors=7, colluders=2)
    assert total_variance(described) == Fraction(4096) ** 2
    assert site_variance(described) == Fraction(4096) ** 2 / 5
    values = noise_of(replace(described, num_coordinates=100_000)).astype(float)
    assert values.var() == pytest.approx(4096**2 / 5, rel=0.02)


def test_the_noise_is_the_tables_on_the_words_of_the_seed() -> None:
    described = noisy(num_coordinates=100)
    buffer, ties = piece_buffer(), piece_buffer()
    Keystream(derive(described.sid, SEED, "noise")).into(buffer, 800)
    Keystream(derive(described.sid, SEED, "noise/ties")).into(ties, 800)
    table = noise_table(described)
    assert table is not None
    expected = table.values(buffer[:800].view("<u8"), lambda count: ties[: 8 * count].view("<u8"))
    assert np.array_equal(noise_of(described), expected)


def test_ties_are_decided_by_the_seed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose thresholds are in every upper half makes every word a tie."""
    described, drawn = noisy(num_coordinates=50), []

    class Counting:
        largest = 0

        def values(self, words_B: np.ndarray, tie_words: object) -> np.ndarray:
            drawn.append(tie_words(3).tolist() + tie_words(2).tolist())  # type: ignore[operator]
            return np.zeros(len(words_B), np.int64)

    monkeypatch.setattr("foedus.privacy.secagg.noise.noise_table", lambda _: Counting())
    noise_of(described)
    noise_of(described)
    noise_of(described, Secret(b"o" * 32))
    buffer = piece_buffer()
    Keystream(derive(described.sid, SEED, "noise/ties")).into(buffer, 40)
    assert drawn[0] == drawn[1] == buffer[:40].view("<u8").tolist()
    assert drawn[2] != drawn[0]


def test_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    described = noisy(num_coordinates=1003)
    whole = noise_of(described)
    monkeypatch.setattr("foedus.privacy.secagg.noise._PER_PIECE", 64)
    assert np.array_equal(whole, noise_of(described))


def test_another_seed_or_another_session_gives_other_noise() -> None:
    described = noisy(num_coordinates=1000)
    first = noise_of(described)
    assert np.array_equal(first, noise_of(described))
    for other in (noise_of(described, Secret(b"m" + b"n" * 31)), noise_of(replace(described, attempt=2))):
        assert np.mean(first == other) < 0.05
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.15


def test_a_site_that_restarts_adds_the_same_noise_again() -> None:
    """Fresh noise on the same update would be a second release: the average of many is the update."""
    run = server(TEN, noisy(num_coordinates=300))
    run.offer()
    run.send()
    run.send()
    site = run.sites[TEN.ids[0]]
    before = site.state
    assert before.stage is Stage.DELIVERED
    update = run.updates[site.id]
    once, again = mask(before, update, site.member), mask(site.state, update, site.member)
    assert once.reply == again.reply
    assert once.words is not None
    assert again.words is not None
    assert np.array_equal(once.words, again.words)
    restarted = mask(once.state, update, site.member)
    assert restarted.reply == once.reply
    with pytest.raises(InvalidUpdate, match="not the one that was masked before"):
        mask(once.state, update + np.float32(1), site.member)


def test_the_seed_is_gone_once_a_site_acknowledges() -> None:
    run = server(TEN, noisy())
    run.run()
    run.require_exact()
    assert all(not site.state.rounding for site in run.sites.values())


def refused(described: SessionDescriptor, policy: SumPolicy | None = None) -> str:
    with pytest.raises(SecureSumFailed) as caught:
        (policy or SumPolicy(modes=frozenset(Mode))).require(described)
    assert caught.value.reason == "policy"
    return str(caught.value)


def test_what_the_policy_asks_of_noise() -> None:
    SumPolicy().require(noisy())
    SumPolicy(min_noise_multiplier=0.5).require(noisy())
    assert "multiplier is 0.5, this site expects at least 0.6" in refused(noisy(), SumPolicy(min_noise_multiplier=0.6))
    for worthless in (-1.0, math.nan):
        with pytest.raises(ConfigError, match="min_noise_multiplier"):
            SumPolicy(min_noise_multiplier=worthless)
    assert "multiplier is 0, this site" in refused(session(TEN), SumPolicy(min_noise_multiplier=0.1))
    assert "every site weighs the same" in refused(noisy(weighted=True, ring=Ring.W64))
    assert "expected 0.5 to 65536" in refused(noisy(noise=Noise.DISCRETE_GAUSSIAN, noise_multiplier=9e-5))
    SumPolicy().require(noisy(noise_multiplier=9e-5))
    assert "expected 0.125 to 65536" in refused(noisy(noise_multiplier=1e-5))
    assert "expected 0.125 to 65536" in refused(noisy(noise_multiplier=20.0))
    SumPolicy().require(noisy(noise_multiplier=13.0))


@pytest.mark.parametrize("mode", [Mode.SKETCH, Mode.SHARES])
def test_noise_drowns_distances(mode: Mode) -> None:
    assert "drown the distances" in refused(noisy(mode=mode))


def test_the_ring_holds_the_updates_and_eight_deviations_of_their_noise() -> None:
    described = noisy(ring=Ring.W16, scale=16.0, clip_norm=100.0, noise_multiplier=0.5)
    updates = 10 * (16 * 100 + 1)
    noise = 8 * 1600 * math.sqrt(10 / (described.needed_survivors - 2))
    assert updates + 0.5 * noise < 2**15 - 1
    assert described.fits
    edge = (2**15 - 1 - updates) / noise
    assert replace(described, noise_multiplier=edge * 0.9999).fits
    assert not replace(described, noise_multiplier=edge * 1.0001).fits
    assert "can overflow" in refused(replace(described, noise_multiplier=edge * 1.0001))


@pytest.mark.parametrize("noise_multiplier", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("clip_norm", [0.001, 8.0, 3000.0])
def test_the_finest_scale_with_noise_is_allowed_and_twice_as_fine_is_not(
    clip_norm: float, noise_multiplier: float
) -> None:
    described = noisy(clip_norm=clip_norm, noise_multiplier=noise_multiplier)
    scale = finest_noisy_scale(10, described.honest_survivors, clip_norm, noise_multiplier)
    policy = SumPolicy(scales=(1.0, 2.0**60))
    policy.require(replace(described, scale=scale))
    if scale < 2.0**40:
        refused(replace(described, scale=2 * scale), policy)
    summed = noise_multiplier * scale * clip_norm * math.sqrt(10 / described.honest_survivors)
    ring = smallest_ring(10, scale, clip_norm, weighted=False, noise_deviation=summed)
    assert ring is not None
    assert replace(described, scale=scale, ring=ring).fits
    if ring is not Ring.W16:
        assert not replace(described, scale=scale, ring=Ring.W16).fits


def test_what_a_release_is_counted_as() -> None:
    described = noisy(num_coordinates=400, min_survivors=7, colluders=2)
    bound = norm_bound(1024.0, 8.0, 400)
    found = release(described)
    assert isinstance(found, SkellamSum)
    assert found.l2_sensitivity == pytest.approx(bound, rel=2e-6)
    assert found.l2_sensitivity > bound
    assert found.l1_sensitivity == pytest.approx(20 * bound, rel=2e-6)
    assert found.variance == 4096.0**2
    other = release(replace(described, noise=Noise.DISCRETE_GAUSSIAN))
    assert isinstance(other, DiscreteGaussianSum)
    assert (other.num_sites, other.num_coordinates, other.site_variance) == (5, 400, float(Fraction(4096**2, 5)))
    assert release(session(TEN)) == NoiselessRelease()
    with pytest.raises(ConfigError, match="query"):
        release(session(TEN, rule="sum", scale=1.0))


def test_more_sites_of_the_servers_own_are_no_more_noise() -> None:
    """What is counted on is n_min - c, whoever takes part; and with one fewer than n_min, nothing is revealed."""
    described = noisy(min_survivors=8, min_sites=8)
    assert release(described) == release(replace(described, participants=described.participants[:8]))
    run = server(TEN, described)
    run.offer()
    run.send()
    run.send()
    run.mask(absent=TEN.ids[:3])
    with pytest.raises(SecureSumFailed) as caught:
        run.send()
    assert caught.value.reason == "too-few"
    for site in run.sites.values():
        assert not [message for message in site.sent if message[0] == Phase.UNMASK]


def test_a_round_is_charged_from_the_moment_that_masked_words_can_leave() -> None:
    """A sum can be opened without the acknowledgement or the shares of a site that is in it."""
    run = server(TEN, noisy())
    run.offer()
    run.send()
    run.send()
    gone, away = TEN.ids[0], TEN.ids[1]
    assert charge(run.sites[gone].state) is None
    run.mask(absent={away})
    run.send(absent={gone})
    run.send(absent={gone})
    assert gone in run.require_exact().survivors
    assert charge(run.sites[gone].state) == release(run.described)
    assert charge(run.sites[away].state) is None
    other = next(site for site in run.sites.values() if site.id not in (gone, away))
    assert charge(other.state) == charge(other.state.ended(Refusal(AbortCode.TOO_FEW, ""))) == release(run.described)


def test_each_group_has_the_noise_that_its_own_honest_sites_need() -> None:
    made = federation(11)
    described = grouped(made, 5, **NOISY, colluders=1, num_coordinates=200)
    run = groups(made, described)
    run.offer()
    run.send()
    run.send()
    seeds = {site.id: site.state.rounding for site in run.sites.values()}
    sessions = {site.id: site.state.descriptor for site in run.sites.values()}
    run.mask()
    run.plain = {site: plain_words(sessions[site], run.updates[site], seeds[site]) for site in seeds}
    run.send()
    run.send()
    assert len(run.require_exact()) == 2
    for one in sessions.values():
        assert (one.needed_survivors, one.colluders) == (5, 1)
        assert site_variance(one) == total_variance(described) / 4
        assert release(one) == release(described)  # here both have four honest survivors


def test_the_noises_seeds_show_nowhere() -> None:
    run = server(TEN, noisy(num_coordinates=300))
    run.offer()
    run.send()
    run.send()
    seeds = {site.id: site.state.rounding for site in run.sites.values()}
    run.mask()
    run.send()
    run.send()
    printed = repr([site.state for site in run.sites.values()]) + repr(run.result())
    wire = b"".join(message for site in run.sites.values() for message in site.sent)
    for site, seed in seeds.items():
        for label in ("noise", "noise/ties"):
            secret = derive(run.described.sid, seed, label).reveal_bytes()
            assert secret not in wire
            assert repr(secret)[2:-1] not in printed
            assert secret.hex() not in printed
        noise = noise_of(run.described, seed).astype(run.described.ring.unsigned)
        assert noise[:4].tobytes() not in run.rows[site].tobytes()


def reachable(path: Path, seen: set[Path]) -> set[Path]:
    """The modules of the package that one imports, directly or not."""
    if path in seen:
        return seen
    seen.add(path)
    for item in ast.walk(ast.parse(path.read_text())):
        if isinstance(item, ast.ImportFrom) and item.level:
            base = path.parents[item.level - 1]
            for name in [item.module] if item.module else [alias.name for alias in item.names]:
                target = base.joinpath(*name.split(".")).with_suffix(".py")
                if target.exists():
                    reachable(target, seen)
    return seen


def test_no_other_randomness_can_be_reached() -> None:
    paths = reachable(PACKAGE / "masking.py", set()) | reachable(PACKAGE / "site.py", set())
    names = {path.name for path in paths}
    assert {"noise.py", "inverse.py", "prg.py", "shamir.py", "quantise.py", "keys.py"} <= names
    for path in paths:
        tree = ast.parse(path.read_text())
        imported = {alias.name for item in ast.walk(tree) if isinstance(item, ast.Import) for alias in item.names}
        imported |= {
            item.module or "" for item in ast.walk(tree) if isinstance(item, ast.ImportFrom) and not item.level
        }
        used = {ast.unparse(item) for item in ast.walk(tree) if isinstance(item, ast.Attribute)}
        assert not any(name.split(".")[0] == "random" or name == "numpy.random" for name in imported), path.name
        assert not any(name.startswith(("np.random", "numpy.random")) for name in used), path.name
    assert inverse.MAX_DEVIATION == 65536


def test_sites_that_refuse_send_no_key() -> None:
    run = server(
        TEN,
        noisy(),
        sites=[Site(replace(one.member, policy=SumPolicy(min_noise_multiplier=1.0))) for one in TEN.sites(SumPolicy())],
    )
    run.offer()
    for site in run.sites.values():
        assert site.refusal is not None
        assert site.refusal.code == "policy"
        assert not site.sent
