"""What went wrong in other systems' secure aggregation, each once, here through whole sessions."""

from __future__ import annotations

import numpy as np
import pytest
from foedus.errors import ConfigError, InvalidUpdate
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.keys import loaded, pair_mask
from foedus.privacy.secagg.messages import Keys, Shares, Unmask
from foedus.privacy.secagg.policy import SumPolicy
from foedus.privacy.secagg.prg import Ring
from foedus.privacy.secagg.quantise import smallest_ring
from foedus.privacy.secagg.signing import Signed
from secure_sums import Server, federation, server, session

TEN = federation(10)


@pytest.mark.parametrize("n", [10, 11, 16])
def test_ten_sites_and_more_do_not_overflow(n: int) -> None:
    """All at the clip norm, in one direction, in the shortest words that the inequality allows."""
    made, scale, clip_norm = federation(n), 256.0, 5.0
    ring = smallest_ring(n, scale, clip_norm, weighted=False)
    assert ring is Ring.W16
    run = server(made, session(made, ring=ring, scale=scale, clip_norm=clip_norm, num_coordinates=1))
    run.updates = {site: np.array([1e9], np.float32) for site in made.ids}
    run.run()
    found = run.require_exact()
    assert int(found.sum_D[0]) in range(n * 1280, n * 1281 + 1)
    assert float(found.mean_D()[0]) == pytest.approx(5.0, abs=1 / scale)


def test_four_sites_sum_right() -> None:
    made = federation(4)
    described = session(made, min_sites=4, min_survivors=4)
    run = server(made, described, policy=SumPolicy(min_sites=4, min_survivors=4))
    run.run()
    run.require_exact()


def test_a_site_that_leaves_before_it_shares_keys_is_simply_not_there() -> None:
    run = server(TEN, session(TEN))
    run.run({TEN.ids[0]: Phase.KEYS, TEN.ids[9]: Phase.SHARES})
    assert run.require_exact().survivors == TEN.ids[1:9]


def test_a_clip_norm_of_zero_is_no_session() -> None:
    with pytest.raises(ConfigError, match="clip norm is 0"):
        session(TEN, clip_norm=0.0)


def test_updates_of_nothing_sum_to_nothing() -> None:
    run = server(TEN, session(TEN))
    run.updates = {site: np.zeros(40, np.float32) for site in TEN.ids}
    run.run()
    assert not run.require_exact().sum_D.any()


def test_whole_number_tensors_are_refused_and_not_rounded_into_nonsense() -> None:
    run = up_to_masking()
    with pytest.raises(InvalidUpdate, match="int64 of shape"):
        run.sites[TEN.ids[0]].mask(np.arange(40))  # type: ignore[arg-type]


def up_to_masking() -> Server:
    run = server(TEN, session(TEN))
    run.offer()
    run.send()
    run.send()
    return run


def test_no_site_is_in_both_lists() -> None:
    """Which secret a holder gives away follows from one list; there is no second one to be named in."""
    run = server(TEN, session(TEN))
    run.run({TEN.ids[4]: Phase.MASKED})
    for unmask in run.collection.unmask.values():
        assert [item.owner for item in unmask.shares] == list(TEN.ids)
        assert [item.owner for item in unmask.shares if item.which.name == "MASK_KEY"] == [TEN.ids[4]]


def test_mask_seeds_are_256_bits_and_no_two_are_alike() -> None:
    run = up_to_masking()
    bodies = {site: Keys.from_bytes(message.body) for site, message in run.collection.keys.items()}
    seeds = set()
    for site in run.sites.values():
        for other in TEN.ids:
            if site.id < other:
                key = loaded(site.state.mask_key)
                seeds.add(pair_mask(run.described.sid, key, bodies[other].mask_key, site.id, other).reveal_bytes())
    assert len(seeds) == 45  # one secret for all would be one
    ones = np.unpackbits(np.frombuffer(b"".join(seeds), np.uint8).reshape(45, 32), axis=1).mean(axis=0)
    assert np.all((ones > 0.15) & (ones < 0.85))  # each of the 256 bits is sometimes set: no 28 or 32 of them
    assert len(ones) == 256


def test_masks_are_not_one_number_for_all_coordinates() -> None:
    """Differences between coordinates must not show: equal coordinates have unrelated words."""
    run = up_to_masking()
    run.updates = {site: np.full(40, 0.5, np.float32) for site in TEN.ids}
    run.mask()
    for row in run.rows.values():
        assert len(np.unique(row)) == 40
        assert np.unique(np.abs(np.diff(row.view("<i4").astype(np.int64)))).size == 39


def test_the_server_is_sent_no_share_before_the_survivors_are_acknowledged() -> None:
    """Shares travel sealed, each for one holder, and of each secret it gets but one kind in the end."""
    run = server(TEN, session(TEN))
    run.run()
    held = {item.owner: item for site in run.sites.values() for item in site.state.held}
    assert not held
    for site in run.sites.values():
        kinds = [message[0] for message in site.sent]
        assert kinds == [Phase.KEYS, Phase.SHARES, Phase.MASKED, Phase.ACKS, Phase.UNMASK]
        sealed = Shares.from_bytes(Signed.from_bytes(site.sent[1]).body).sealed
        assert [item.other for item in sealed] == [other for other in TEN.ids if other != site.id]
        given = Unmask.from_bytes(Signed.from_bytes(site.sent[4]).body).shares
        assert len({item.share.reveal_bytes() for item in given}) == 10
