"""In sessions over groups, too, no secret and no update shows: in what prints, or on the wire before the reveal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.keys import loaded, pair_mask, self_mask
from foedus.privacy.secagg.messages import Keys
from foedus.privacy.secagg.opening_groups import open_groups
from foedus.privacy.secagg.signing import Kind
from foedus.privacy.secagg.state import SiteState
from secure_groups import Groups, grouped, groups, loose, relaxed
from secure_sums import federation

MADE = federation(20)


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
            public = Keys.from_bytes(message.body).mask_key
            yield pair_mask(sid, loaded(state.mask_key), public, state.site, message.sender).reveal_bytes()


@pytest.fixture(scope="module")
def seen() -> tuple[Groups, set[bytes], list[Any]]:
    """A run in which one site of a group drops out and another group is lost; all its secrets; all that prints."""
    run = groups(MADE, loose(MADE, 5, num_coordinates=600, min_survivors=4), allowed=relaxed())
    found: set[bytes] = set()
    shown: list[Any] = []

    def look() -> None:
        for site in run.sites.values():
            found.update(secrets_of(site.state))
            shown.extend(map(repr, (site.state, site.stored, site.refusal)))
        shown.append(repr(run.collection))

    run.offer()
    look()
    run.send()
    look()
    run.send()
    look()
    run.mask(absent={run.members(0)[0], *run.members(1)[:2]})
    look()
    run.send()
    look()
    run.send()
    look()
    openings = open_groups(run.collection)
    for opening in openings.opened.values():
        found.update(seed.reveal_bytes() for seed in (*opening.plus, *opening.minus))
    shown.append(repr((openings, run.require_exact())))
    assert set(openings.lost) == {1}
    return run, found - {b""}, shown


def test_nothing_that_prints_shows_a_secret(seen: tuple[Groups, set[bytes], list[Any]]) -> None:
    _, secrets, shown = seen
    assert len(secrets) == 20 * (4 + 2 * 5 + 1) + 4 * 10  # of each its own, the shares it holds; of each pair a mask
    text = "".join(shown)
    assert "Secret" in text
    for secret in secrets:
        for form in (repr(secret)[2:-1], secret.hex(), str(int.from_bytes(secret, "big")), str(list(secret))[1:-1]):
            assert form not in text


def test_up_to_the_reveal_no_secret_is_on_the_wire(seen: tuple[Groups, set[bytes], list[Any]]) -> None:
    run, secrets, _ = seen
    sent = [message for site in run.sites.values() for message in site.sent]
    before = b"".join(message for message in sent if message[0] != Kind.UNMASK)
    assert not [secret for secret in secrets if secret in before]
    assert len([message for message in sent if message[0] == Kind.UNMASK]) == 4 + 5 + 5


def test_a_site_that_dropped_out_shows_one_secret_and_not_the_other(
    seen: tuple[Groups, set[bytes], list[Any]],
) -> None:
    run, _, _ = seen
    for group in run.collection.left.values():
        for unmask in group.unmask.values():
            for item in unmask.shares:
                assert item.owner in group.descriptor.participants
                assert (item.owner in group.masked) == (item.which.name == "SEED")


def test_no_update_shows(seen: tuple[Groups, set[bytes], list[Any]]) -> None:
    run, _, shown = seen
    text = "".join(shown)
    for site, row in run.rows.items():
        assert repr(float(run.updates[site][0]))[:8] not in text
        assert run.plain[site][:8].tobytes() not in row.tobytes()


def test_a_lost_group_s_words_stay_masked() -> None:
    """The server has the words of everybody in it, and no share."""
    run = groups(MADE, grouped(MADE, 5, num_coordinates=4000))
    run.updates = {site: np.zeros(4000, np.float32) for site in MADE.ids}
    run.run(dict.fromkeys(run.members(1)[:2], Phase.ACKS))
    assert set(run.collection.lost) == {1}
    assert not run.collection.groups[1].unmask
    total_D = np.zeros(4000, np.uint32)
    for site in run.members(1):
        total_D += run.rows[site]
    for row_D in (total_D, *(run.rows[site] for site in run.members(1))):
        counts, _ = np.histogram(row_D.astype(np.float64) / 2**32, 16, (0, 1))
        assert ((counts - 250) ** 2 / 250).sum() < 50  # chi-square, 15 degrees, p < 2e-5
