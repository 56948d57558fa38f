"""Model bytes down, update bytes up, both resumable; one attempt each, the caller tries again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc

from ..errors import ConnectionFailed, CorruptTransfer, FoedusError, InvalidUpdate, PeerUntrusted, ProtocolError
from ..files import hashed, sha256_file, storing
from ..protos.chunks import decode_chunk, encode_upload_chunk, upload_bytes
from ..protos.messages import Receipt
from ..protos.pace import Pace
from ..protos.v1 import transfer_pb2
from ..protos.wire import receipt_from_pb, upload_header_to_pb
from .calls import calling
from .parcel import Parcel

MODELS_KEPT = 3
DOWNLOAD = "/foedus.v1.Transfer/Download"
UPLOAD = "/foedus.v1.Transfer/Upload"

Connect = Callable[[], grpc.aio.Channel]
Moved = Callable[[int], None]


async def download(connect: Connect, folder: Path, sha256: str, num_bytes: int, moved: Moved) -> Path:
    """The model file with this digest, fetched unless it is here; continues a broken download.

    Args:
        connect: the channel of the moment. It is asked for when the call begins and not before: what
            is here already may take long to hash, and a renewed certificate closes a channel that
            carries no call.
        folder: where models are kept, by digest.
        sha256: hex digest of the model file.
        num_bytes: its size.
        moved: told of each number of bytes that arrived.

    Raises:
        CorruptTransfer: what came does not have the digest; it is removed.
        FoedusError: what the server or the connection said.
    """
    path, partial = folder / sha256, folder / f"{sha256}.part"
    # A file that a power cut damaged is fetched again.
    if path.is_file() and await asyncio.to_thread(sha256_file, path) == sha256:
        path.touch()
        return path
    with storing(f"receiving model {sha256[:12]}…"), partial.open("ab") as file:
        received, digest = await asyncio.to_thread(hashed, partial)
        with calling():
            receive = connect().unary_stream(DOWNLOAD, transfer_pb2.DownloadRequest.SerializeToString, decode_chunk)
            async for chunk in receive(transfer_pb2.DownloadRequest(sha256=sha256, offset=received)):
                if chunk.offset != received or received + len(chunk.data) > num_bytes:
                    raise ProtocolError(f"a chunk at byte {chunk.offset} does not fit the model's {num_bytes} bytes")
                file.write(chunk.data)
                digest.update(chunk.data)
                received += len(chunk.data)
                moved(len(chunk.data))
    if received != num_bytes or digest.hexdigest() != sha256:
        partial.unlink(missing_ok=True)
        raise CorruptTransfer(f"the model received does not have the digest {sha256[:12]}…")
    partial.replace(path)
    _forget_older(folder)
    return path


async def upload(connect: Connect, parcel: Parcel, moved: Moved) -> Receipt:
    """Send an update from where the server has it; its receipt.

    Raises:
        InvalidUpdate: the parcel's file cannot be read.
        FoedusError: what the server or the connection said; the parcel can be sent again.
    """
    resume: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    header = transfer_pb2.UploadMessage(header=upload_header_to_pb(parcel.header))
    unreadable: OSError | None = None

    async def messages() -> AsyncIterator[transfer_pb2.UploadMessage | bytes]:
        nonlocal unreadable
        yield header
        offset, pace = await resume, Pace()
        try:
            for data in parcel.pieces(offset, pace.next_bytes):
                yield encode_upload_chunk(offset, data)
                offset += len(data)
                moved(len(data))
        except OSError as error:
            # gRPC would only break the call off, which looks like a lost connection.
            unreadable = error
            raise

    send = connect().stream_stream(UPLOAD, upload_bytes, transfer_pb2.UploadReply.FromString)
    call = send(messages())
    try:
        with calling():
            async for reply in call:
                if reply.WhichOneof("body") == "receipt":
                    return receipt_from_pb(reply.receipt)
                if resume.done() or reply.resume_offset > parcel.header.num_bytes:
                    raise ProtocolError(f"the server wants to resume at byte {reply.resume_offset}")
                resume.set_result(reply.resume_offset)
        raise CorruptTransfer("the server ended the upload without a receipt")
    except ConnectionFailed:
        if unreadable is None:
            raise
        raise InvalidUpdate(f"the update kept for sending cannot be read: {unreadable}") from unreadable
    finally:
        resume.cancel()
        call.cancel()


def worth_retrying(error: FoedusError) -> bool:
    """Whether the same call may succeed later.

    A peer that is not trusted counts: a proxy that hangs up while the server restarts looks like one.
    """
    return isinstance(error, PeerUntrusted) or error.grpc_status in (
        "UNAVAILABLE",
        "RESOURCE_EXHAUSTED",
        "DATA_LOSS",
        "INTERNAL",
    )


def _forget_older(folder: Path) -> None:
    files = sorted((p for p in folder.iterdir() if p.is_file()), key=lambda p: p.stat().st_mtime, reverse=True)
    for path in files[MODELS_KEPT:]:
        path.unlink(missing_ok=True)
