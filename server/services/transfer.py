"""Model bytes down, update bytes up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from ...errors import AccessDenied, ProtocolError
from ...protos.channel import CHUNK_BYTES
from ...protos.messages import Receipt
from ...protos.v1 import common_pb2, transfer_pb2, transfer_pb2_grpc
from ...protos.wire import digest, receipt_to_pb, upload_header_from_pb
from ..access import Context, caller
from ..assignments import may_fetch
from ..federation import Federation
from ..intake import Incoming, Intake

STALL_SECONDS = 300.0


class TransferService(transfer_pb2_grpc.TransferServicer):
    """Resumable streams of chunks."""

    def __init__(self, fed: Federation, intake: Intake) -> None:
        self._fed = fed
        self._intake = intake

    async def Download(
        self, request: transfer_pb2.DownloadRequest, context: Context
    ) -> AsyncIterator[common_pb2.Chunk]:
        """A model, from an offset on, to a site that was given work with it."""
        sha256 = digest(request.sha256, "sha256")
        if not may_fetch(self._fed, caller.get().name, sha256):
            raise AccessDenied(f"no open work of {caller.get().name!r} uses model {sha256[:12]}…")
        async for chunk in chunks(self._fed.blobs.path(sha256), request.offset):
            yield chunk
            self._fed.metrics.bytes_moved("down", len(chunk.data))

    async def Upload(
        self, request_iterator: AsyncIterator[transfer_pb2.UploadMessage], context: Context
    ) -> AsyncIterator[transfer_pb2.UploadReply]:
        """An update: header, resume offset, chunks, receipt."""
        site = caller.get().name
        first = await anext(request_iterator, None)
        if first is None or first.WhichOneof("body") != "header":
            raise ProtocolError("an upload begins with its header")
        begun = self._intake.begin(site, upload_header_from_pb(first.header))
        if isinstance(begun, Receipt):
            yield transfer_pb2.UploadReply(receipt=receipt_to_pb(begun))
            return
        try:
            yield transfer_pb2.UploadReply(resume_offset=begun.received)
            await self._take(begun, request_iterator)
            receipt = await self._intake.finish(begun)
        finally:
            self._intake.abandon(begun)
        yield transfer_pb2.UploadReply(receipt=receipt_to_pb(receipt))

    async def _take(self, incoming: Incoming, requests: AsyncIterator[transfer_pb2.UploadMessage]) -> None:
        while incoming.received < incoming.header.num_bytes:
            try:
                async with asyncio.timeout(STALL_SECONDS):
                    message = await anext(requests, None)
            except TimeoutError:
                raise ProtocolError(f"no chunk came for {STALL_SECONDS:g} s", hint="resume the upload") from None
            if message is None:
                return
            if message.WhichOneof("body") != "chunk":
                raise ProtocolError("after the header come chunks")
            self._intake.write(incoming, message.chunk.offset, message.chunk.data)


async def chunks(path: Path, offset: int = 0) -> AsyncIterator[common_pb2.Chunk]:
    """A file in chunks, from an offset on.

    Raises:
        ProtocolError: the offset is beyond the file's end.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if offset > size:
            raise ProtocolError(f"offset {offset} is beyond the {size} bytes there are")
        file.seek(offset)
        while data := file.read(CHUNK_BYTES):
            yield common_pb2.Chunk(offset=offset, data=data)
            offset += len(data)
