"""Model bytes down, update bytes up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import grpc

from ...errors import AccessDenied, ProtocolError
from ...protos.chunks import Piece, decode_upload, encode_chunk
from ...protos.messages import Receipt
from ...protos.pace import Pace
from ...protos.v1 import transfer_pb2
from ...protos.wire import digest, receipt_to_pb, upload_header_from_pb
from ..access import Context, caller
from ..assignments import may_fetch
from ..federation import Federation
from ..intake import Incoming, Intake

SERVICE = transfer_pb2.DESCRIPTOR.services_by_name["Transfer"].full_name
STALL_SECONDS = 300.0

M = TypeVar("M")


class TransferService:
    """Resumable streams of chunks."""

    def __init__(self, fed: Federation, intake: Intake) -> None:
        self._fed = fed
        self._intake = intake

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve both methods, downloads with chunks that are already encoded."""
        handlers = {
            "Download": grpc.unary_stream_rpc_method_handler(
                self.Download, transfer_pb2.DownloadRequest.FromString, bytes
            ),
            "Upload": grpc.stream_stream_rpc_method_handler(
                self.Upload, decode_upload, transfer_pb2.UploadReply.SerializeToString
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    async def Download(self, request: transfer_pb2.DownloadRequest, context: Context) -> AsyncIterator[bytes]:
        """A model, from an offset on, to a site that was given work with it; or a message that it has to fetch."""
        sha256, who = digest(request.sha256, "sha256"), caller.get()
        site = who.name
        source: Path | bytes | None = self._fed.sums.file_for(site, sha256)
        if source is None:
            if not may_fetch(self._fed, site, sha256):
                raise AccessDenied(f"no open work of {site!r} uses model {sha256[:12]}…")
            source = self._fed.blobs.path(sha256)
        for offset, data in chunks(source, request.offset):
            self._fed.registry.authorise(who.identity, who.key_sha256)  # it may have been revoked meanwhile
            yield encode_chunk(offset, data)
            self._fed.metrics.bytes_moved("down", len(data))
            self._fed.collector.alive(site)

    async def Upload(
        self, request_iterator: AsyncIterator[Piece | transfer_pb2.UploadMessage], context: Context
    ) -> AsyncIterator[transfer_pb2.UploadReply]:
        """An update: header, resume offset, chunks, receipt."""
        site = caller.get().name
        first = await next_in_time(request_iterator)
        if first is None or isinstance(first, Piece) or not first.HasField("header"):
            raise ProtocolError("an upload begins with its header")
        begun = await self._intake.begin(site, upload_header_from_pb(first.header))
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

    async def _take(self, incoming: Incoming, requests: AsyncIterator[Piece | transfer_pb2.UploadMessage]) -> None:
        while incoming.received < incoming.header.num_bytes:
            message = await next_in_time(requests)
            if message is None:
                return
            if not isinstance(message, Piece):
                raise ProtocolError("after the header come chunks")
            self._intake.write(incoming, message.offset, message.data)


async def next_in_time(messages: AsyncIterator[M]) -> M | None:
    """The next message of a stream, or None at its end.

    Raises:
        ProtocolError: none came for ``STALL_SECONDS``.
    """
    try:
        async with asyncio.timeout(STALL_SECONDS):
            return await anext(messages, None)
    except TimeoutError:
        raise ProtocolError(f"nothing came for {STALL_SECONDS:g} s", hint="begin the transfer again") from None


def chunks(source: Path | bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """A file, or what could be one, in chunks with their offsets, from an offset on.

    Raises:
        ProtocolError: the offset is beyond the file's end.
    """
    with BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        size = file.seek(0, 2)
        if offset > size:
            raise ProtocolError(f"offset {offset} is beyond the {size} bytes there are")
        file.seek(offset)
        pace = Pace()
        while data := file.read(pace.next_bytes()):
            yield offset, data
            offset += len(data)
