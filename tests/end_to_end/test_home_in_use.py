"""One server to a home: a second one must not tidy up what the first is working on."""

from __future__ import annotations

import pytest
from foedus.clock import SystemClock
from foedus.errors import StoreError
from foedus.server.init import reissue_operator
from loopback import loopback


async def test_a_second_server_touches_nothing(tmp_path):
    async with loopback(tmp_path) as local:
        scratch = local.fed.blobs.scratch("submitted-by-somebody")
        scratch.write_bytes(b"half of a model")
        update = local.fed.inbox.update("a-run", 1, "a")
        update.parent.mkdir(parents=True)
        update.write_bytes(b"an update")
        with pytest.raises(StoreError, match="another process works in") as caught:
            async with loopback(tmp_path):
                pass
        assert "stop the foedus server" in caught.value.hint
        with pytest.raises(StoreError, match="another process works in"):
            reissue_operator(local.home.folder, SystemClock())
        assert scratch.exists()
        assert update.exists()
    async with loopback(tmp_path):  # the home is free again
        assert not scratch.exists()
    reissue_operator(local.home.folder, SystemClock())
