"""A task whose every result is known: each site adds its own constant, and notes what it did."""

import json
import time
from pathlib import Path

import numpy as np
from foedus import ArrayTask

NAP_SECONDS = 0.01


def make(value=1.0, examples=1, size=4, steps=1, folder="", site="", scale=0.0, grow=0.0):
    """A site that adds ``value + grow * round`` to every coordinate.

    Args:
        folder: where ``journal`` is written and the gates lie: training waits after each step while
            a file ``hold-train`` or ``hold-train-SITE`` is there, evaluation likewise.
        steps: how many steps one training takes; each is checkpointed.
        scale: the initial model's standard deviation; random, so that it cannot be compressed.
    """
    here = Path(folder or ".")

    def note(*words):
        if folder:
            with (here / "journal").open("a") as journal:
                journal.write(" ".join(map(str, (site, *words))) + "\n")

    def held(kind):
        return folder and ((here / f"hold-{kind}").exists() or (here / f"hold-{kind}-{site}").exists())

    def train(arrays, job):
        checkpoint = job.checkpoints / f"{job.run}-{job.round}.toy"
        done = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
        note("train", job.round)
        for step in range(done, steps):
            note("step", job.round, step)
            checkpoint.write_text(json.dumps(step + 1))
            while held("train"):
                if job.should_stop():
                    return arrays, examples
                job.report(step)  # the same number again: no sign of progress
                time.sleep(NAP_SECONDS)
            job.report(step + 1)
        change = np.float32(value + grow * job.round)
        return {"w": arrays["w"] + change}, examples, {"value": float(value)}

    def evaluate(arrays):
        note("evaluate")
        while held("evaluate"):
            time.sleep(NAP_SECONDS)
        return examples, {"loss": float(abs(arrays["w"]).mean())}

    def initial(seed):
        return {"w": (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)}

    return ArrayTask(name="toy", initial=initial, train=train, evaluate=evaluate)
