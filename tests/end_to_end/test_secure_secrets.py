"""What masked rounds leave behind: nothing secret in a log, and nothing secret at a site once the round is over."""

from __future__ import annotations

import io
import logging

import pytest
from foedus import logs
from foedus.client_sdk.sum_store import SumStore
from foedus.privacy.secagg.collect import Phase as SumPhase
from foedus.privacy.secagg.state import Stage
from real_sites import serving
from secure_trial import VALUES, secure_plan, secure_trial


@pytest.fixture(autouse=True)
def _leave_logging_as_it_was():
    root, own = logging.getLogger(), logging.getLogger("foedus")
    handlers, level = list(root.handlers), own.level
    yield
    root.handlers[:] = handlers
    own.setLevel(level)


def secrets_of(state):
    """Everything at a site that opens something."""
    own = [state.seal_key, state.mask_key, state.seed, state.rounding]
    held = [secret for item in state.held for secret in (item.seed_share, item.mask_share)]
    return [secret.reveal_bytes() for secret in (*own, *held) if secret]


def beside(home, run):
    """A site's state, read while the site is running."""
    store = SumStore.open(home.sums)
    try:
        return store.find(run, 1)
    finally:
        store.close()


async def test_no_log_shows_a_secret_and_no_file_keeps_one(tmp_path):
    stream = io.StringIO()
    logs.configure("debug", stream, "json")
    async with secure_trial(tmp_path) as trial:
        homes = await trial.enrol(*VALUES)
        trial.sign()
        trial.hold(*homes)
        async with serving(trial.local, *homes):
            run = await trial.submit(secure_plan())
            await trial.until(lambda: trial.phase(run) is SumPhase.MASKED, "shares are dealt")
            await trial.until(lambda: all(len(beside(home, run).held) == 5 for home in homes), "they are delivered")
            secrets = [secret for home in homes for secret in secrets_of(beside(home, run))]
            assert len(set(secrets)) == 5 * (4 + 2 * 5)
            trial.let_go(*homes)
            await trial.is_the_mean_of(run, *VALUES)
            erased = [beside(home, run).stage is Stage.REVEALED and not secrets_of(beside(home, run)) for home in homes]
            assert all(erased)
            for home in homes:  # not in a database's log either, while the site goes on
                assert home.sums.stat().st_mode & 0o077 == 0
                for path in home.path.rglob("*"):
                    bytes_kept = path.read_bytes() if path.is_file() else b""
                    assert not any(s in bytes_kept or s.hex().encode() in bytes_kept for s in secrets), path
    written = stream.getvalue()
    assert "round_committed" in written
    assert "update_delivered" in written
    for secret in secrets:
        assert secret.hex() not in written
        assert repr(secret)[2:-1] not in written
