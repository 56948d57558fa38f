"""The heart federation, live: a server and four hospitals as processes, and the table at the end.

A fifth site may attack it, and a robust rule may hold against that.
"""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ... import configuration
from ...errors import ConfigError, RoundFailed
from ...files import private_folder, write
from ...modelfile import ModelFile
from ...named import nearest
from ...output import table
from ...plan import AggregatorPlan, Plan
from ...protos.v1 import common_pb2, operations_pb2
from ...server.credentials import OperatorHome
from ...server.judging import require_coherent
from ...server.operator import operations
from ...simulations.local import LocalFederation
from .attacker import ATTACKS
from .baseline import Quality, alone, centralised, heart_plan, quality
from .data import FEATURES, HOSPITALS
from .scaling import scaling_from, scaling_query
from .task import initial_model

ENTRY = "foedus.examples.heart.task:task_for"
RECORDS_ENTRY = "foedus.examples.heart.records:records_for"
ATTACKER_ENTRY = "foedus.examples.heart.attacker:task_for"
ATTACKER = "attacker"
# Each hospital's own policy must allow what its default does not.
POLICY = {"secure": {"min_sites": len(HOSPITALS), "min_survivors": len(HOSPITALS)}}
PROTECTED = (
    "The server sees the sum of the hospitals' updates and no single one. Four are the fewest of which that hides "
    "anything: none of them may drop out of a round, and two who told each other theirs would be left with the sum of "
    "the other two."
)
UNPROTECTED = (
    "The server sees every update: it takes more sites than these for a robust rule under a secure sum "
    '(protection = "sketch" or "groups").'
)
CLIP = 0.5  # no hospital's update is longer than 0.3
ON_THEIR_OWN = ("mean", "fltrust", "foolsgold")  # what these compare is not to be mixed
NAMES = {
    "cleveland": "Cleveland",
    "hungary": "Hungary",
    "switzerland": "Switzerland",
    "va-long-beach": "VA Long Beach",
    ATTACKER: "the attacker",
}


def run(
    *,
    rounds: int | None,
    split: int,
    keep: Path | None,
    json_file: Path | None,
    attack: str | None = None,
    aggregator: str | None = None,
) -> None:
    """Train, compare, print; write the result as JSON if asked to.

    With ``attack`` a malicious site takes part; all figures are the hospitals' own nevertheless.

    Raises:
        ConfigError: ``keep`` exists already, or there is no such attack or aggregator, or it needs more sites.
        RoundFailed: the run did not finish.
    """
    console, begun = Console(stderr=True), time.monotonic()
    plan = plan_for(rounds, attack, aggregator)
    sites = {hospital: (ENTRY, {"hospital": hospital}) for hospital in HOSPITALS}
    if attack:
        sites[ATTACKER] = (ATTACKER_ENTRY, {"attack": attack})
    with _folder(keep) as folder, LocalFederation(folder, name="hospitals") as federation:
        with console.status("starting a server and four hospitals"):
            federation.start_server()
            for site, (entry, parameters) in sites.items():
                federation.add_site(site, entry, {**parameters, "split": split}, policy=POLICY)
                if site in HOSPITALS:
                    asked = {"columns": FEATURES, "min_sites": len(HOSPITALS)}
                    federation.open_records(site, RECORDS_ENTRY, {"hospital": site, "split": split}, policy=asked)
                federation.start_site(site)
            federation.sign_roster()
        with console.status("finding out in a secure sum how the features are scaled"):
            scaling = scaling_from(federation.ask(scaling_query(len(HOSPITALS))))
        console.print(PROTECTED if plan.protection == "masks" else UNPROTECTED)
        id = federation.submit(plan, initial_model(scaling, plan.seed))
        progress = Progress(plan.rounds, dict.fromkeys(sites, "starting"))
        finished = asyncio.run(_watch(federation, id, progress, console))
        if finished.state != "finished":
            raise RoundFailed(f"the run {finished.state}: {finished.reason}")
        path = folder / "model.safetensors"
        sha256 = federation.fetch(id, "last", path)
        federated = quality(ModelFile.open(path).read(), split)
        left_out = asyncio.run(_left_out(federation, id))
    with console.status("training the models to compare with"):
        pooled = quality(centralised(split, plan), split)
        own = {hospital: quality(alone(hospital, split, plan), split) for hospital in HOSPITALS}
    seconds = time.monotonic() - begun
    print(_comparison(federated, pooled, own))
    for site, rounds_left_out in left_out.items():
        print(f"{NAMES[site]} was left out in {len(rounds_left_out)} of {finished.round} rounds")
    if json_file:
        result = _result(finished.round, federated, pooled, own, sha256, seconds) | {
            "protection": plan.protection,
            "aggregator": plan.aggregator.name,
            "pre": plan.aggregator.pre,
            "attack": attack,
            "attacker": ATTACKER if attack else None,
            "left_out": left_out,
        }
        write(json_file, json.dumps(result, indent=2) + "\n")


def plan_for(rounds: int | None, attack: str | None, aggregator: str | None) -> Plan:
    """The example's plan, changed as asked: under attack, one of five sites lies, and all five are waited for.

    The hospitals are not alike: before a robust rule looks, each update is mixed with its nearest
    neighbours, or Krum and its kin would keep two hospitals and leave out the others.

    Raises:
        ConfigError: there is no such attack or aggregator, or it needs more sites.
    """
    if attack and attack not in ATTACKS:
        raise ConfigError(f"there is no attack {attack!r}", hint=nearest(attack, ATTACKS))
    plan = heart_plan()
    num_attackers = 1 if attack else 0
    cohort = plan.cohort.model_copy(update={"minimum": len(HOSPITALS) + num_attackers})
    changed = plan.model_copy(update={"rounds": rounds or plan.rounds, "cohort": cohort})
    if aggregator and aggregator != plan.aggregator.name:
        wanted = {
            "name": aggregator,
            "f": num_attackers,
            "pre": () if aggregator in ON_THEIR_OWN else ("nnm",),
            "clip": CLIP if aggregator == "centered-clipping" else None,
            "reference": HOSPITALS[0] if aggregator == "fltrust" else None,
        }
        robust = configuration.validate(AggregatorPlan, wanted, "the aggregator")
        changed = changed.model_copy(update={"aggregator": robust, "protection": "none"})
    require_coherent(changed)
    return changed


@dataclass(slots=True)
class Progress:
    """What the display shows, fed with the run's events."""

    rounds: int
    sites: dict[str, str]
    round: int = 0
    doing: str = "waiting for the hospitals"
    losses: dict[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    def take(self, event: operations_pb2.RunEvent) -> None:
        """Note one event."""
        self.round = max(self.round, event.round)
        match event.name:
            case "site_connected":
                self.sites[event.site] = "connected"
            case "site_disconnected":
                self.sites[event.site] = "away"
            case "round_opened":
                self.doing = "training"
                self.sites = dict.fromkeys(self.sites, "training")
            case "update_accepted":
                self.sites[event.site] = "delivered"
                self.losses[event.site] = event.metrics.get("loss", math.nan)
            case "round_committed":
                self.doing = "evaluating"
                self.sites = dict.fromkeys(self.sites, "evaluating")
            case "round_evaluated":
                self.metrics = dict(event.metrics)

    def picture(self) -> Group:
        """The display."""
        sites = Table(box=None, padding=(0, 2))
        for heading in ("hospital", "state", "training loss"):
            sites.add_column(heading)
        for site, state in self.sites.items():
            loss = self.losses.get(site)
            sites.add_row(NAMES[site], state, "" if loss is None else f"{loss:.3f}")
        head = Text(f"round {self.round}/{self.rounds}  {self.doing}  {_shown(self.metrics)}")
        bar = Table.grid()  # a bar alone would not end its line
        bar.add_row(ProgressBar(total=self.rounds, completed=self.round, width=60))
        return Group(head, bar, sites)


async def _watch(federation: LocalFederation, id: str, progress: Progress, console: Console) -> operations_pb2.Run:
    last = operations_pb2.Run()
    async with operations(OperatorHome(federation.operator)) as stub:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            async for event in stub.WatchRun(operations_pb2.RunRequest(run=id)):
                progress.take(event)
                last = event.run
                if console.is_terminal:
                    live.update(progress.picture(), refresh=True)
                elif event.name == "round_evaluated":
                    console.print(f"round {event.round}/{progress.rounds}  {_shown(event.metrics)}")
        shown: operations_pb2.Run = await stub.ShowRun(operations_pb2.RunRequest(run=id))
    return shown if shown.id else last


async def _left_out(federation: LocalFederation, id: str) -> dict[str, list[int]]:
    """The rounds whose model a site's update is no part of, though it came, by site."""
    found: dict[str, list[int]] = {}
    async with operations(OperatorHome(federation.operator)) as stub:
        async for round in stub.ListRounds(operations_pb2.RunRequest(run=id)):
            for part in round.participations:
                if part.phase == common_pb2.PHASE_TRAIN and part.verdict == "rejected":
                    found.setdefault(part.site, []).append(round.number)
    return found


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="foedus-heart-") as folder:
            yield Path(folder)
        return
    if keep.exists():
        raise ConfigError(f"{keep} exists already", hint="name a folder that does not")
    yield private_folder(keep)


def _comparison(federated: Quality, pooled: Quality, own: Mapping[str, Quality]) -> str:
    rows = [("federated", federated), ("all data in one place", pooled)]
    rows += [(f"{NAMES[hospital]} alone", measured) for hospital, measured in own.items()]
    lines = [
        (
            name,
            *(_cell(measured.hospital_accuracy[h], measured.hospital_auc[h]) for h in HOSPITALS),
            _cell(measured.accuracy, measured.auc),
        )
        for name, measured in rows
    ]
    headings = ("model", *(NAMES[hospital] for hospital in HOSPITALS), "all hospitals")
    return f"accuracy (AUC) on {federated.num_patients} test patients\n\n{table(headings, lines)}"


def _result(
    rounds: int, federated: Quality, pooled: Quality, own: Mapping[str, Quality], sha256: str, seconds: float
) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "accuracy": federated.accuracy,
        "auc": federated.auc,
        "centralised_accuracy": pooled.accuracy,
        "centralised_auc": pooled.auc,
        "local_accuracy": {hospital: measured.accuracy for hospital, measured in own.items()},
        "per_site": {
            hospital: {
                "accuracy": federated.hospital_accuracy[hospital],
                "auc": _number(federated.hospital_auc[hospital]),
                "centralised_accuracy": pooled.hospital_accuracy[hospital],
                "own_model_accuracy": own[hospital].hospital_accuracy[hospital],
            }
            for hospital in HOSPITALS
        },
        "model_sha256": sha256,
        "seconds": round(seconds, 2),
    }


def _cell(accuracy: float, auc: float) -> str:
    # A hospital whose test patients are all ill has no AUC.
    return f"{accuracy:.3f} ({'  -  ' if math.isnan(auc) else f'{auc:.3f}'})"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _shown(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.3f}" for name, value in sorted(metrics.items()))
