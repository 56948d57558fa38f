"""Sites as the SDK makes them: enrolled by invitation, their task and policy in their homes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from foedus.client_sdk.config import TaskEntry
from foedus.client_sdk.enrol import join
from foedus.client_sdk.home import SiteHome
from foedus.client_sdk.site import Site
from foedus.clock import SystemClock
from foedus.protos.v1 import operations_pb2

TASK = """
import numpy as np
from foedus.client_sdk.array_task import ArrayTask
from foedus.layout import Role

def initial(seed):
    return {"w": np.zeros(4, np.float32), "running": np.ones(2, np.float32), "seen": np.array([3])}

def train(arrays, job):
    if SECRET_FAULT:
        raise ZeroDivisionError("the scanner is on fire")
    arrays["w"] = arrays["w"] + 1
    return arrays, 10, {"loss": 0.5}

def evaluate(arrays):
    return 10, {"auc": float(arrays["w"][0])}

SECRET_FAULT = False
toy = ArrayTask(name="toy", initial=initial, train=train, evaluate=evaluate, roles={"running": Role.BUFFER})
"""


async def enrolled(local, name, *, source=TASK, policy=""):
    """A site's home with the toy task, enrolled by invitation as people do it."""
    request = operations_pb2.InviteRequest(name=name, role="site", lifetime_seconds=3600, approved=True)
    reply = await local.operator().Invite(request)
    home = SiteHome(local.folder / name)
    home.path.mkdir()
    (home.path / "toy.py").write_text(source)
    tasks = {"toy": TaskEntry(entry="toy.py:toy")}
    await join(local.invitation(reply.invitation), home, clock=SystemClock(), tasks=tasks)
    home.policy.write_text(policy + home.policy.read_text())
    return home


@asynccontextmanager
async def serving(local, *homes):
    """The sites, connected."""
    sites = [asyncio.create_task(Site.from_home(home.path).serve()) for home in homes]
    while len(local.fed.sessions) < len(homes):
        await local.fed.sessions.change()
    try:
        yield
    finally:
        for site in sites:
            site.cancel()
        await asyncio.gather(*sites, return_exceptions=True)
