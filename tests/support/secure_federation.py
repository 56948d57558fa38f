"""Real sites in secure sums on a loopback server: enrolled with a roster key pinned, and in the roster."""

from __future__ import annotations

from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from foedus.client_sdk.config import TaskEntry
from foedus.client_sdk.enrol import join
from foedus.client_sdk.home import SiteHome
from foedus.clock import SystemClock
from foedus.privacy.secagg.roster import signed_roster
from foedus.protos.v1 import operations_pb2

# Each site adds its own value to its coordinates, and has as many examples.
TASK = """
import time
import numpy as np
from foedus.client_sdk.array_task import ArrayTask

def initial(seed):
    return {"w": np.zeros(NUM_VALUES, np.float32)}

def train(arrays, job):
    while (HOLD := __import__("pathlib").Path(__file__).parent / "hold").exists():
        if job.should_stop():
            return arrays, 1, {}
        time.sleep(0.01)
    with (HOLD.parent / "trained").open("a") as note:
        note.write(f"{job.round}\\n")
    arrays["w"] = arrays["w"] + np.float32(VALUE)
    return arrays, EXAMPLES, {"loss": 0.5}

def evaluate(arrays):
    return 10, {"loss": float(arrays["w"][0])}

toy = ArrayTask(name="toy", initial=initial, train=train, evaluate=evaluate)
"""


async def enrolled(
    local, operator: Ed25519PrivateKey, name: str, value: float, *, examples=1, policy="", num_values=3
) -> SiteHome:
    """A site's home, whose invitation carried the operator's roster key."""
    code = TASK
    for word, stands_for in (("NUM_VALUES", num_values), ("VALUE", value), ("EXAMPLES", examples)):
        code = code.replace(word, str(stands_for))
    request = operations_pb2.InviteRequest(name=name, role="site", lifetime_seconds=3600, approved=True)
    reply = await local.operator().Invite(request)
    home = SiteHome(local.folder / name)
    home.path.mkdir()
    (home.path / "toy.py").write_text(code)
    invitation = replace(local.invitation(reply.invitation), roster_key=operator.public_key().public_bytes_raw())
    await join(invitation, home, clock=SystemClock(), tasks={"toy": TaskEntry(entry="toy.py:toy")})
    home.policy.write_text(policy + home.policy.read_text())
    return home


def sign_roster(local, operator: Ed25519PrivateKey) -> None:
    """List every active site's key."""
    latest = local.fed.rosters.latest()
    keys = tuple(local.fed.registry.signing_keys().values())
    roster = signed_roster(operator, local.fed.config.federation, latest.version + 1 if latest else 1, keys)
    local.fed.rosters.publish(roster.to_bytes())
