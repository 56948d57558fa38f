"""What masks cost: a site, the server, the wire, and a whole round.

    python benchmarks/secure.py [--n 20] [--d 1e6] [--rounds 4] [--json]

CPU seconds, medians, with ours, the limit and the peer measured in turn in one process. The limit of
masks expands and adds as many keystreams at the rates of AES-256-CTR and of memory; of a masked upload
it also draws the rounding and hashes the words once; of the server's sum it also reads every row; of a
sum of selected updates it takes one mask off each, as if all were selected. The peer is Flower's
SecAgg+, by its own primitives. Of bytes, the limit is a plain float32 update; of whole rounds, plain
ones: seconds on the wall between real processes, with their CPU beside. Shares are of whole updates of as
many values, in as many blocks as there is room for.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent))
from _apart import apart
from _flower_masks import flower_works
from _rounds import Measured, foedus_rounds
from _sessions import Session, bytes_up, collected, group, masked_state, session
from _shares import share_works
from _timing import Taken, Work, in_turn, machine, peak_mb
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.joining import join
from foedus.privacy.secagg.masking import mask
from foedus.privacy.secagg.opening import Opening, add_up, open_sum
from foedus.privacy.secagg.prg import PIECE_BYTES, Keystream, fold, piece_buffer
from foedus.privacy.secagg.site import receive
from foedus.privacy.secrets import Secret

GONE = 3  # sites that leave once they have dealt shares
SELECTED = 0.8  # of the updates, where a rule has selected them by their sketches

Rows = list[dict[str, Any]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=20, help="sites; 6 at least")
    parser.add_argument("--d", type=lambda text: int(float(text)), default=10**6)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sites", type=int, default=10, help="in the whole rounds")
    parser.add_argument("--mb", type=float, default=25.0, help="of parameters in the whole rounds")
    parser.add_argument("--rounds", type=int, default=5, help="0 leaves the whole rounds out")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    options = parser.parse_args()
    if options.n < 6:
        parser.error(f"--n is {options.n}, expected 6 or more: fewer are not summed where a fifth may collude")
    rows = apart(steps, options.n, options.d, options.repeats, not options.without_peers)
    if options.rounds:
        rows.append(whole_rounds(options.sites, options.mb, options.rounds, options.repeats))
    if options.json:
        params = {name: getattr(options, name) for name in ("n", "d", "repeats", "sites", "mb", "rounds")}
        print(json.dumps({"benchmark": "secure", "params": params, "machine": machine(), "rows": rows}))
        return
    for row in rows:
        print(as_line(row))


def steps(n: int, d: int, repeats: int, with_peers: bool) -> Rows:
    """What each step takes a site and the server, and what goes over the wire."""
    update_D = np.random.default_rng(0).normal(size=d).astype(np.float32)
    of, chosen = group(n, d), round(SELECTED * n)
    full, short = session(of, update_D), session(of, update_D, gone=min(GONE, n - of.descriptor.needed_survivors))
    ours = {**_site_works(full, update_D), **_server_works(full, short, chosen), **share_works(of.descriptor)}
    limits = _limits(of.descriptor.num_words, n, chosen)
    peers = flower_works(update_D, n, of.descriptor.threshold) if with_peers else {}
    names = [*ours, *(f"limit: {name}" for name in limits), *(f"peer: {name}" for name in peers)]
    taken = in_turn(dict(zip(names, [*ours.values(), *limits.values(), *peers.values()], strict=True)), repeats)
    rows = [_row(name, taken, peak_mb(work)) for name, work in ours.items()]
    phases = [collected(full) for _ in range(max(repeats, 3))]
    for phase in (Phase.KEYS, Phase.SHARES, Phase.MASKED, Phase.ACKS, Phase.UNMASK):
        seconds = statistics.median(seen[phase] for seen in phases)
        rows.append(row_of(f"server: collect {phase.name.lower()}", seconds))
    plain_bytes, masked_bytes = update_D.nbytes, bytes_up(full)
    rows.append(
        row_of("bytes up of a site")
        | {"bytes": masked_bytes, "limit_bytes": plain_bytes, "ratio_to_limit": masked_bytes / plain_bytes}
    )
    return rows


def whole_rounds(sites: int, mb: float, rounds: int, repeats: int) -> dict[str, Any]:
    """Masked and plain rounds of a task that does nothing, in turn."""
    masked: list[Measured] = []
    plain: list[Measured] = []
    for _ in range(repeats):
        masked.append(foedus_rounds(sites, mb, rounds, "masks"))
        plain.append(foedus_rounds(sites, mb, rounds))
    seconds, limit = (statistics.median(one.median for one in of) for of in (masked, plain))
    cpu, limit_cpu = (statistics.median(one.cpu_seconds for one in of) for of in (masked, plain))
    found = row_of(f"a round, {sites} sites, {mb:g} MB", seconds, limit, max(one.peak_mb or 0 for one in masked))
    return found | {
        "cpu_seconds": cpu,
        "limit_cpu_seconds": limit_cpu,
        "cpu_ratio_to_limit": cpu / limit_cpu if limit_cpu else None,
    }


def row_of(
    name: str, seconds: float | None = None, limit: float | None = None, peak: float | None = None
) -> dict[str, Any]:
    """A row without a peer."""
    return {
        "name": name,
        "seconds": seconds,
        "limit_seconds": limit,
        "ratio_to_limit": seconds / limit if seconds and limit else None,
        "peer": None,
        "ratio_to_peer": None,
        "peak_mb": peak,
    }


def as_line(row: Mapping[str, Any]) -> str:
    """A row for people."""
    unit = 1 if (row["seconds"] or 0) > 0.5 else 1000
    figures = (
        ("", row["seconds"], unit, " s" if unit == 1 else " ms"),
        ("over the limit ", row["ratio_to_limit"], 1, ""),
        ("CPU over the limit's ", row.get("cpu_ratio_to_limit"), 1, ""),
        (f"{row['peer']} takes ", row["ratio_to_peer"], 1, " times as long"),
        ("peak ", row["peak_mb"], 1, " MB"),
        ("", row.get("bytes"), 1, " bytes"),
    )
    shown = [f"{before}{figure * factor:.3g}{after}" for before, figure, factor, after in figures if figure is not None]
    return f"{row['name']:<40}{', '.join(shown)}"


def _site_works(of: Session, update_D: npt.NDArray[np.float32]) -> dict[str, Work]:
    member, state, words_D = of.group.members[0], masked_state(of), np.zeros(of.group.descriptor.num_words, "<u4")
    add, subtract = _seeds(len(of.rows) // 2), _seeds(len(of.rows) - len(of.rows) // 2)
    offer = of.collection.offer()

    def answer(phase: Phase) -> Work:
        before, message = of.before[phase]
        return lambda: receive(before, message, member)

    return {
        "masks": lambda: fold(words_D, add=add, subtract=subtract),
        "masked upload": lambda: mask(state, update_D, member),
        "site: join": lambda: join(offer, member, of.group.known),
        "site: check keys, deal shares": answer(Phase.SHARES),
        "site: open shares": answer(Phase.MASKED),
        "site: acknowledge": answer(Phase.ACKS),
        "site: reveal shares": answer(Phase.UNMASK),
    }


def _server_works(full: Session, short: Session, num_chosen: int) -> dict[str, Work]:
    """Opening and adding up; also after drop-outs, and where only some of the updates are in the sum."""
    gone = f", {len(full.rows) - len(short.rows)} sites gone"
    opened = {"": open_sum(full.collection), gone: open_sum(short.collection)}
    sites = sorted(full.rows)
    chosen = sites[:num_chosen]
    # Between a selected site and one that is not, the masks do not cancel.
    left = len(chosen) * (1 + len(sites) - len(chosen))
    selected = Opening(tuple(chosen), tuple(_seeds(left)), (), ())

    def adding(of: Session, opening: Opening) -> Work:
        rows = [(site, of.rows[site]) for site in opening.survivors]
        return lambda: add_up(of.group.descriptor, opening, rows)

    return {
        "server: open": lambda: open_sum(full.collection),
        f"server: open{gone}": lambda: open_sum(short.collection),
        "server: add up": adding(full, opened[""]),
        f"server: add up{gone}": adding(short, opened[gone]),
        f"server: add up, {num_chosen} selected": adding(full, selected),
    }


def _limits(num_words: int, n: int, chosen: int) -> dict[str, Work]:
    """The least that can be done, at this machine's rates."""
    buffer = piece_buffer()
    per_piece = PIECE_BYTES // 4
    sum_B, piece_B = np.zeros(per_piece, "<u4"), buffer[:PIECE_BYTES].view("<u4")
    row_D, total_D = np.ones(num_words, "<u4"), np.zeros(num_words, "<u4")
    sizes = [min(per_piece, num_words - start) for start in range(0, num_words, per_piece)]

    def expand() -> None:
        stream = Keystream(_seeds(1)[0])
        for size in sizes:
            stream.into(buffer, 4 * size)

    def masks(count: int = n) -> None:
        for _ in range(count):
            expand()
            for size in sizes:
                np.add(sum_B[:size], piece_B[:size], out=sum_B[:size])

    def upload() -> None:
        masks()
        expand()
        hashlib.sha256(row_D.data).digest()

    def add(count: int = n) -> None:
        masks(count)
        for _ in range(count):
            np.add(total_D, row_D, out=total_D)

    return {
        "masks": masks,
        "masked upload": upload,
        "server: add up": add,
        f"server: add up, {chosen} selected": lambda: add(chosen),
    }


def _row(name: str, taken: Mapping[str, Taken], peak: float) -> dict[str, Any]:
    limit, peer = taken.get(f"limit: {name}"), taken.get(f"peer: {name}")
    found = row_of(name, taken[name].cpu, limit.cpu if limit else None, peak)
    if peer:
        found |= {"peer": "flwr SecAgg+", "ratio_to_peer": peer.cpu / taken[name].cpu}
    return found


def _seeds(count: int) -> list[Secret]:
    return [Secret(os.urandom(32)) for _ in range(count)]


if __name__ == "__main__":
    main()
