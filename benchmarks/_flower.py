"""Flower's deployment engine on the same job: a real SuperLink and SuperNodes on loopback.

Insecure and with in-memory state, as Flower starts by default. Each reply differs from the model
sent by a constant of its node, so that its object store has to carry it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from foedus.simulations.local import free_port

LAYERS = 10

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "echoapp"
version = "1.0.0"
description = "echo"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "bench"
flwr-version-target = "1.42.0"

[tool.flwr.app.components]
serverapp = "echoapp.server_app:app"
clientapp = "echoapp.client_app:app"

[tool.flwr.app.config]
size-mb = 1.0
layers = 10
nodes = 4
rounds = 3
mode = "distinct"
out = ""
"""

CLIENT = """
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    arrays = msg.content["arrays"]
    if context.run_config["mode"] == "distinct":
        bump = (context.node_id % 997) / 997.0
        arrays = ArrayRecord([a + bump for a in arrays.to_numpy_ndarrays()])
    metrics = MetricRecord({"num-examples": 10})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)
"""

SERVER = """
import json
import time

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


class Timed(FedAvg):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.t = []

    def configure_train(self, server_round, arrays, config, grid):
        out = super().configure_train(server_round, arrays, config, grid)
        self.t.append([time.perf_counter(), None, None])
        return out

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.t[-1][1] = time.perf_counter()
        self.n_ok = sum(not r.has_error() for r in replies)
        self.errors = [r.error.reason for r in replies if r.has_error()][:2]
        out = super().aggregate_train(server_round, replies)
        self.t[-1][2] = time.perf_counter()
        return out


@app.main()
def main(grid: Grid, context: Context) -> None:
    cfg = context.run_config
    layers = int(cfg["layers"])
    per = int(cfg["size-mb"] * 1e6 / 4 / layers)
    rng = np.random.default_rng(0)
    arrays = ArrayRecord([rng.random(per, dtype=np.float32) for _ in range(layers)])
    n = int(cfg["nodes"])
    s = Timed(fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n)
    s.start(grid, arrays, num_rounds=int(cfg["rounds"]), timeout=1200)
    rounds = [
        {"total_s": t[2] - t[0], "exchange_s": t[1] - t[0], "aggregate_s": t[2] - t[1]}
        for t in s.t
    ]
    with open(cfg["out"], "w") as f:
        json.dump({"rounds": rounds, "ok": s.n_ok, "errors": s.errors}, f)
"""


def flower_rounds(nodes: int, mb: float, rounds: int, timeout: float = 900.0) -> dict[str, Any] | None:
    """Seconds per round and the peak memory of SuperLink and ServerApp together; None without flwr."""
    if importlib.util.find_spec("flwr") is None:
        return None
    with tempfile.TemporaryDirectory(prefix="foedus-flower-") as name:
        return _measure(Path(name), nodes, mb, rounds, timeout)


def _measure(work: Path, nodes: int, mb: float, rounds: int, timeout: float) -> dict[str, Any] | None:
    app, home, out = work / "app", work / "home", work / "out.json"
    (app / "echoapp").mkdir(parents=True)
    home.mkdir()
    (app / "echoapp" / "__init__.py").write_text("")
    (app / "echoapp" / "client_app.py").write_text(CLIENT)
    (app / "echoapp" / "server_app.py").write_text(SERVER)
    (app / "pyproject.toml").write_text(PYPROJECT)
    port = free_port()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "b"\n\n[superlink.b]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    binaries = Path(sys.executable).parent
    environment = dict(
        os.environ,
        PATH=f"{binaries}{os.pathsep}{os.environ['PATH']}",
        FLWR_HOME=str(home),
        FLWR_TELEMETRY_ENABLED="0",
        FLWR_DISABLE_UPDATE_CHECK="1",
        OMP_NUM_THREADS="1",
    )
    processes: list[subprocess.Popen[bytes]] = []
    with (work / "log.txt").open("wb") as log:

        def spawn(*command: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work)
            processes.append(process)
            return process

        try:
            link = spawn(
                str(binaries / "flower-superlink"),
                "--insecure",
                "--port",
                str(port),
                "--disable-runtime-dependency-installation",
            )
            _wait_for(port, link)
            for _ in range(nodes):
                spawn(
                    str(binaries / "flower-supernode"),
                    "--insecure",
                    "--superlink",
                    f"127.0.0.1:{port}",
                    "--port",
                    str(free_port()),
                )
            watch = Watch(link.pid)
            watch.start()
            settings = f'size-mb={mb} layers={LAYERS} nodes={nodes} rounds={rounds} mode="distinct" out="{out}"'
            subprocess.run(
                [str(binaries / "flwr"), "run", str(app), "b", "--run-config", settings],
                env=environment,
                stdout=log,
                stderr=log,
                check=True,
            )
            deadline = time.monotonic() + timeout
            while not out.exists() and time.monotonic() < deadline and link.poll() is None:
                time.sleep(0.1)
            time.sleep(0.5)
            watch.halt.set()
            watch.join()
        finally:
            for process in reversed(processes):
                _stop(process)
    if not out.exists():
        return None
    seconds = [entry["total_s"] for entry in json.loads(out.read_text())["rounds"]]
    # The first round also starts every node's executor.
    return {"s_per_round": statistics.median(seconds[1:] or seconds), "both_peak_mb": round(watch.peak_kb / 1024, 1)}


class Watch(threading.Thread):
    """Highest memory of the SuperLink and its ServerApps at once."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak_kb, self.halt = pid, 0, threading.Event()

    def run(self) -> None:
        while not self.halt.wait(0.05):
            apps = [pid for pid in _below(self.pid) if "flwr-serverapp" in _command(pid)]
            self.peak_kb = max(self.peak_kb, sum(map(_rss_kb, [self.pid, *apps])))


def _wait_for(port: int, link: subprocess.Popen[bytes]) -> None:
    while link.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)


def _below(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_below(int(child))]
    except OSError:
        pass
    return found


def _rss_kb(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    below = _below(process.pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in below:  # descendants of what this file started, and nothing else
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
