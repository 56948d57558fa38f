"""Kills a process after every single line the outbox executes, and looks at what is left.

Run by ``test_outbox.py`` in a process of its own, where forking is safe.
"""

import os
import sys
from pathlib import Path

import foedus.client_sdk.outbox as outbox_module
from foedus import files
from foedus.client_sdk import outbox_rows
from foedus.client_sdk.outbox import Outbox, Trained
from foedus.clock import ManualClock
from foedus.protos.messages import Receipt

MODEL, LAYOUT = "a" * 64, "b" * 64
BLOCKS = [b"one" * 1000, b"two" * 1000]
WATCHED = {module.__file__ for module in (outbox_module, files, outbox_rows)}
STEPS = ("opened", "begun", "put", "delivered", "released")


def life(folder: Path, say) -> None:
    box = Outbox.open(folder, ManualClock())
    say("opened")
    box.begin("run", 1, MODEL, 7)
    say("begun")
    box.put("run", 1, MODEL, BLOCKS, Trained(layout_sha256=LAYOUT, num_examples=3, num_steps=4, metrics={"loss": 0.5}))
    say("put")
    box.delivered("run", 1, MODEL, Receipt(True))
    say("delivered")
    box.release("run", 1)
    say("released")


def dies_after(lines: int, folder: Path) -> tuple[list[str], bool]:
    """The steps that were acknowledged before the kill, and whether the life ended before it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        left = lines

        def count(frame, event, _argument):
            nonlocal left
            if frame.f_code.co_filename not in WATCHED:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    os._exit(9)
            return count

        sys.settrace(count)
        life(folder, lambda step: os.write(writing, f"{step}\n".encode()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read().split()
    return said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def inspect(folder: Path, said: list[str]) -> str:
    box = Outbox.open(folder, ManualClock())
    found = box.find("run", 1, MODEL)
    left = {path.name for path in folder.iterdir() if path.suffix in (".update", ".tmp") or ".tmp" in path.name}
    assert left == (set() if found is None else {"run-1.update"}), left
    if found is not None:
        assert found.path.read_bytes() == b"".join(BLOCKS)
        assert (found.header.num_examples, found.header.num_steps, found.header.metrics) == (3, 4, {"loss": 0.5})
        assert found.seed == 7
    done = box.rounds_done("run")
    last = said[-1] if said else ""
    if last in ("", "opened"):
        assert found is None
        assert done == 0
        state = "none"
    elif last == "begun":
        assert done == (found is not None)
        state = "whole" if found else "none"
    elif last == "put":
        assert found is not None
        assert done == 1
        state = "delivered" if found.receipt else "whole"
    else:
        assert done == 1
        assert last == "delivered" or found is None
        assert found is None or found.receipt == Receipt(True)
        state = "delivered" if found else "released"
    box.close()
    return state


def main(base: Path) -> None:
    seen: dict[str, int] = {}
    lines, over = 0, False
    while not over:
        folder = base / str(lines)
        folder.mkdir()
        said, over = dies_after(lines, folder)
        assert said == list(STEPS[: len(said)])
        state = inspect(folder, said)
        seen[state] = seen.get(state, 0) + 1
        lines += 1
    print(lines, *(f"{state}={count}" for state, count in sorted(seen.items())))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
