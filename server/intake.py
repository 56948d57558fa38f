"""Updates on their way in: resumable, checked against their header, decided once and for good."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from dataclasses import dataclass, field
from typing import BinaryIO

from ..errors import (
    CorruptTransfer,
    DiskFull,
    FoedusError,
    InvalidUpdate,
    LayoutMismatch,
    ProtocolError,
    SecureSumFailed,
    StaleRound,
    StoreError,
)
from ..files import storing, sync_file
from ..layout import Layout
from ..privacy.secagg.codes import AbortCode, abort
from ..protos.messages import Receipt, UploadHeader
from .admission import decided, is_late, require_current
from .federation import Federation
from .history import RoundState, Verdict
from .sum_state import shares_updates
from .update_file import scan

DISK_RESERVE_BYTES = 64 << 20


@dataclass(slots=True, eq=False)
class Incoming:
    """One update in transit. ``received`` bytes are on the disk and hashed."""

    site: str
    header: UploadHeader
    layout: Layout
    file: BinaryIO
    received: int
    digest: hashlib._Hash
    replaced: bool = field(default=False)


class Intake:
    """Receives updates; for each, begin, then chunks, then finish."""

    def __init__(self, fed: Federation) -> None:
        self._fed = fed
        self._incoming: dict[tuple[str, int, str], Incoming] = {}
        self._opening: dict[tuple[str, int, str], object] = {}

    async def begin(self, site: str, header: UploadHeader) -> Incoming | Receipt:
        """Open an upload where it was left, or say what has been decided already.

        Raises:
            StaleRound: the site was never asked for this, has begun again on another stream, or has masked
                the update for an earlier attempt.
            DiskFull: there is no room for the update.
        """
        admitted = self._admit(site, header)
        return admitted if isinstance(admitted, Receipt) else await self._open(site, header)

    def _admit(self, site: str, header: UploadHeader) -> tuple[Layout, bool] | Receipt:
        """The layout of an update that may come, and whether it is late; or what has been decided."""
        fed = self._fed
        part = fed.participations.find(header.work, site)
        round = fed.rounds.find(header.run, header.round)
        # The same answer for another site's run as for none at all: a site learns nothing about either.
        if part is None or round is None:
            raise StaleRound(f"{site} was not asked to train in {header.work}")
        run = fed.runs.find(header.run)
        receipt = decided(part, header)
        if receipt is not None:
            return receipt
        if header.masked and run.plan.protection != "none" and round.state is RoundState.COLLECTING:
            require_current(fed, header, round)
        try:
            # The run's layout never changes; the model of an earlier round may be gone.
            layout = fed.layout(run.initial_sha256)
            late = is_late(fed, run, round, site, header, layout)
        except (StaleRound, LayoutMismatch, InvalidUpdate) as error:
            return self._reject(site, header, error)
        return layout, late

    def write(self, incoming: Incoming, offset: int, data: memoryview) -> None:
        """Append a chunk.

        Raises:
            ProtocolError: it is empty, does not continue where the last one ended, or exceeds the header's size.
            StaleRound: the same site has begun again on another stream.
            DiskFull: the chunk could not be stored; what came before stays.
        """
        if incoming.replaced:
            raise StaleRound("the upload goes on in another stream of the same site")
        if not data:
            raise ProtocolError("a chunk is empty")
        if offset != incoming.received:
            raise ProtocolError(f"a chunk starts at byte {offset}, expected {incoming.received}")
        if offset + len(data) > incoming.header.num_bytes:
            raise ProtocolError(f"more bytes came than the {incoming.header.num_bytes} announced")
        with self._holding(incoming.header), storing(f"receiving the update of {incoming.site}"):
            incoming.file.write(data)
        incoming.digest.update(data)
        incoming.received += len(data)
        self._fed.collector.alive(incoming.site)

    async def finish(self, incoming: Incoming) -> Receipt:
        """Check the whole update and record the decision; the receipt may be sent after that.

        Raises:
            CorruptTransfer: the bytes are not the ones announced; the site must send them again.
        """
        fed, header, site = self._fed, incoming.header, incoming.site
        partial = fed.inbox.partial(header.run, header.round, site, header.sha256)
        self._close(incoming)
        if incoming.received != header.num_bytes:
            raise CorruptTransfer(f"the update ended after {incoming.received} of {header.num_bytes} bytes")
        if incoming.digest.hexdigest() != header.sha256:
            partial.unlink(missing_ok=True)
            raise CorruptTransfer("the update's bytes do not have the digest announced", hint="send it again")
        failed: InvalidUpdate | StoreError | None = None
        try:
            if header.masked:
                # Once the others have acknowledged it, its site cannot make it again.
                await asyncio.to_thread(sync_file, partial)
            else:
                await asyncio.to_thread(scan, incoming.layout, partial)
        except (InvalidUpdate, StoreError) as error:  # the latter too if the round was over and its files removed
            failed = error
        return self._decide(incoming, failed)

    def abandon(self, incoming: Incoming) -> None:
        """The stream broke: what was received stays for the next attempt."""
        self._close(incoming)

    def _decide(self, incoming: Incoming, failed: InvalidUpdate | StoreError | None) -> Receipt:
        # No await in here: between looking at the round and recording the update nothing can close it.
        # And a closed round stands: whoever is found out only then was late, and is not counted as exposed.
        fed, header, site = self._fed, incoming.header, incoming.site
        admitted = self._admit(site, header)
        if isinstance(admitted, Receipt):
            return admitted
        _, late = admitted
        partial = fed.inbox.partial(header.run, header.round, site, header.sha256)
        if isinstance(failed, InvalidUpdate):
            partial.unlink(missing_ok=True)
            return self._reject(site, header, failed, late=late)
        if failed is not None:
            raise failed
        with storing(f"keeping the update of {site}"):
            os.replace(partial, fed.inbox.update(header.run, header.round, site))
        verdict = Verdict.LATE if late else Verdict.ACCEPTED
        with self._holding(header):
            refusal = self._masked(site, header)
            if refusal is not None:
                return self._reject(site, header, refusal, late=refusal.reason == AbortCode.LATE)
            fed.participations.settle(header.work, site, verdict, upload=header)
        # After a crash an update may come again, when another answer of its site is awaited already.
        if not header.masked or site not in fed.sums.current(header.work).waiting:
            fed.collector.settle(site, header.work, accepted=not late)
        fed.metrics.update_decided(verdict)
        fed.metrics.bytes_moved("up", header.num_bytes)
        fed.feed.publish(f"update_{verdict}", run=header.run, round=header.round, site=site, metrics=header.metrics)
        return Receipt(True)

    def _masked(self, site: str, header: UploadHeader) -> SecureSumFailed | None:
        """Tell the secure sum of the words or shares that have come; why it does not take them.

        Raises:
            StoreError: they could not be read or recorded.
        """
        if not header.masked:
            return None
        sums, work = self._fed.sums, header.work
        if shares_updates(sums.current(work).state):  # the file is a message by itself
            path = self._fed.inbox.update(header.run, header.round, site)
            with storing(f"reading {path}"):
                refusal = sums.receive(site, work, path.read_bytes())
        else:
            digest = bytes.fromhex(header.sha256)
            refusal = sums.receive(site, work, header.masked, words_digest=digest, num_bytes=header.num_bytes)
        return abort(refusal.code, refusal.reason, refusal.blamed) if refusal else None

    async def _open(self, site: str, header: UploadHeader) -> Incoming | Receipt:
        fed = self._fed
        key = (header.run, header.round, site)
        earlier = self._incoming.pop(key, None)
        if earlier is not None:
            earlier.replaced = True
            earlier.file.close()
        with self._holding(header):
            self._require_room(header)
            # Hashing what a large update left takes seconds, in which the others are served.
            mine = self._opening[key] = object()
            opening = asyncio.to_thread(fed.inbox.open_partial, header.run, header.round, site, header.sha256)
            failed: StoreError | None = None
            try:
                received, digest = await opening
            except StoreError as error:
                failed = error
            finally:
                newest = self._opening.get(key) is mine
                if newest:
                    del self._opening[key]
            # Meanwhile everything may have changed; from here to the end nothing can.
            if not newest:
                raise StaleRound("the upload goes on in another stream of the same site")
            admitted = self._admit(site, header)
            if isinstance(admitted, Receipt):
                return admitted
            if failed is not None:
                raise failed
            layout, _ = admitted
            path = fed.inbox.partial(header.run, header.round, site, header.sha256)
            with storing(f"receiving the update of {site}"):
                file = path.open("ab", buffering=0)
        incoming = Incoming(site, header, layout, file, received, digest)
        self._incoming[key] = incoming
        return incoming

    def _require_room(self, header: UploadHeader) -> None:
        free = shutil.disk_usage(self._fed.inbox.folder).free
        if free < header.num_bytes + min(DISK_RESERVE_BYTES, header.num_bytes):
            raise DiskFull(
                f"an update of {header.num_bytes} bytes does not fit into the {free} bytes left on the disk",
                hint="free some space; the run can then be resumed",
            )

    def _close(self, incoming: Incoming) -> None:
        incoming.file.close()
        key = (incoming.header.run, incoming.header.round, incoming.site)
        if self._incoming.get(key) is incoming:
            del self._incoming[key]

    def _reject(self, site: str, header: UploadHeader, error: FoedusError, *, late: bool = False) -> Receipt:
        fed = self._fed
        verdict = Verdict.LATE if late or isinstance(error, StaleRound) else Verdict.REJECTED
        fed.participations.settle(header.work, site, verdict, code=error.code, reason=str(error))
        fed.collector.settle(site, header.work, accepted=False)
        fed.metrics.update_decided(verdict, error.code)
        fed.feed.publish(f"update_{verdict}", run=header.run, round=header.round, site=site, detail=str(error))
        return Receipt(False, error.code, str(error))

    def _holding(self, header: UploadHeader) -> _Holding:
        return _Holding(self._fed, header.run)


@dataclass(frozen=True, slots=True)
class _Holding:
    """Pauses the run when the server cannot store what belongs to it."""

    fed: Federation
    run: str

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, StoreError):
            self.fed.hold(self.run, str(error))
