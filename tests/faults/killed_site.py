"""A site that kills itself around a write of its secure sums: ``python killed_site.py HOME``.

The file ``kill-at`` in its home may name a stage and a side, as "MASKED before": the process gets SIGKILL before or
after the state of that stage is recorded, and so before the answer that goes with it leaves.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from eager_sites import hurry, serve
from foedus import logs
from foedus.client_sdk.sum_store import SumStore

ORDERS = Path(sys.argv[1]) / "kill-at"


def kill_at(order: str) -> None:
    if ORDERS.exists() and ORDERS.read_text() == order:
        ORDERS.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def count_states() -> None:
    real = SumStore.keep

    def counted(self: SumStore, state: Any, before: Any) -> None:
        kill_at(f"{state.stage.name} before")
        real(self, state, before)
        kill_at(f"{state.stage.name} after")

    SumStore.keep = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    count_states()
    hurry()
    logs.configure("info", format="text")
    asyncio.run(serve())
