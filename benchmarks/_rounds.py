"""Seconds of the rounds of a real federation whose task does nothing but carry bytes."""

from __future__ import annotations

import os
import statistics
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from foedus.client_sdk.loading import load_task
from foedus.plan import Cohort, Evaluation, LocalTraining, Plan, Protection
from foedus.simulations.local import LocalFederation

TASK = """
import numpy as np
from foedus import ArrayTask

def make(num_values=1, bump=0.0):
    def train(arrays, job):
        return {"w": arrays["w"] + np.float32(bump)}, 10
    return ArrayTask(name="echo", initial=lambda seed: {"w": np.zeros(num_values, np.float32)}, train=train)
"""


@dataclass(frozen=True)
class Measured:
    """Seconds of each round, the CPU seconds of all processes in one of the later, and the server's peak memory."""

    seconds: list[float]
    cpu_seconds: float = 0.0
    peak_mb: float | None = None
    idle_mb: float | None = None

    @property
    def median(self) -> float:
        """The typical round; the first also pays for connecting and is left out."""
        return statistics.median(self.seconds[1:] or self.seconds)


def foedus_rounds(sites: int, mb: float, rounds: int, protection: Protection = "none") -> Measured:
    """A server and sites as processes of their own, with mutual TLS and durable state."""
    with tempfile.TemporaryDirectory(prefix="foedus-rounds-") as name:
        folder, num_values = Path(name), max(1, int(mb * 1e6 / 4))
        (folder / "task.py").write_text(TASK)
        entry = f"{folder / 'task.py'}:make"
        with LocalFederation(folder) as federation:
            federation.start_server()
            pid = federation.processes["server"].pid
            idle = status_mb(pid, "VmRSS")
            for number in range(sites):
                federation.add_site(f"site{number}", entry, {"num_values": num_values, "bump": number * 1e-3})
            if protection != "none":
                federation.sign_roster()
            for number in range(sites):
                federation.start_site(f"site{number}")
            plan = Plan(
                name="rounds",
                task="echo",
                rounds=rounds,
                protection=protection,
                cohort=Cohort(minimum=sites),
                training=LocalTraining(steps=1),
                evaluation=Evaluation(every=0),
            )
            run = federation.submit(plan, load_task(entry, {"num_values": num_values}, folder).initial(0))
            federation.wait(run, lambda shown: len(shown.rounds) > min(1, rounds - 1), seconds=1200)
            begun = _cpu_seconds(federation)
            done = federation.wait(run, seconds=1200)
            assert done.state == "finished", done.reason
            seconds = [r.finished_unix_seconds - r.started_unix_seconds for r in done.rounds]
            cpu_seconds = (_cpu_seconds(federation) - begun) / max(1, rounds - 1)
            return Measured(seconds, cpu_seconds, status_mb(pid, "VmHWM"), idle)


def status_mb(pid: int | None, key: str) -> float | None:
    """A figure of /proc/PID/status in megabytes."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return round(int(line.split()[1]) / 1024, 1)
    except OSError:
        pass
    return None


def _cpu_seconds(federation: LocalFederation) -> float:
    """What all processes have used so far; 0 where /proc does not tell."""
    ticks = 0
    for process in federation.processes.values():
        with suppress(OSError):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
