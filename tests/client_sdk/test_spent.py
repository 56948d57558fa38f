"""The log says what a sum with noise has cost this site, once: when its round is over."""

from __future__ import annotations

import logging

import pytest
from foedus.client_sdk.spent import log_spent
from foedus.privacy.renyi import epsilon
from foedus.privacy.secagg.charges import release
from foedus.privacy.secagg.descriptor import Noise
from secure_sums import federation, server, session

FIVE = federation(5)


def masked(**changes):
    """A site's state, whose update was masked."""
    run = server(FIVE, session(FIVE, **changes))
    run.offer()
    before = run.sites[FIVE.ids[0]].state
    run.send()
    run.send()
    run.mask()
    return before, run.sites[FIVE.ids[0]].state


def test_a_masked_update_with_noise_is_told_and_what_is_remembered_of_it_is_not(caplog):
    caplog.set_level(logging.INFO, "foedus.client_sdk.spent")
    before, state = masked(noise=Noise.SKELLAM, noise_multiplier=0.5)
    for silent in (None, before, state.remembered()):
        log_spent(silent)
    assert caplog.records == []
    log_spent(state)
    (record,) = caplog.records
    assert record.getMessage() == "privacy_spent"
    cost = epsilon([release(state.descriptor)], 1e-6)
    fields = {
        "run": state.descriptor.run,
        "round": state.descriptor.round,
        "epsilon": pytest.approx(cost),
        "delta": 1e-6,
    }
    assert record.fields == fields


def test_of_a_sum_without_noise_nothing_is_told(caplog):
    caplog.set_level(logging.INFO, "foedus.client_sdk.spent")
    log_spent(masked()[1])
    assert caplog.records == []
