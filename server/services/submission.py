"""A run is submitted: its plan, then its initial model in chunks, all of it checked before anything is recorded."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from ...configuration import validate_json
from ...errors import ConfigError, CorruptTransfer, DiskFull, FoedusError, MessageTooLarge, ProtocolError
from ...files import storing, sync_file
from ...modelfile import ModelFile
from ...plan import Plan
from ...privacy.secagg.protectable import require_protectable_model
from ...protos.channel import SECURE_BYTES
from ...protos.v1 import operations_pb2
from ...protos.wire import digest
from ..federation import Federation
from ..history import Run
from ..judging import require_coherent
from .transfer import next_in_time

MAX_PLAN_BYTES = 256 << 10


async def take_submission(fed: Federation, requests: AsyncIterator[operations_pb2.SubmitMessage]) -> Run:
    """Check the plan, take the initial model and record the run, queued.

    Raises:
        ProtocolError: the stream does not begin with a header, or goes on too slowly.
        MessageTooLarge: the plan or the model is larger than this server takes.
        ConfigError: the plan, or the model under this plan, cannot be.
        CorruptTransfer: the model that came is not the one announced.
        DiskFull, StoreError: the model or the run cannot be stored.
    """
    first = await next_in_time(requests)
    if first is None or first.WhichOneof("body") != "header":
        raise ProtocolError("a submission begins with its header")
    header = first.header
    if len(header.plan_json) > MAX_PLAN_BYTES:
        raise MessageTooLarge(f"the plan has {len(header.plan_json)} bytes, at most {MAX_PLAN_BYTES} are taken")
    plan = validate_json(Plan, header.plan_json, "the plan")
    require_coherent(plan)
    sha256 = digest(header.model_sha256, "model_sha256")
    scratch = fed.blobs.scratch(f"submitted-{secrets.token_hex(6)}")
    try:
        await _receive(fed, scratch, header.model_bytes, sha256, requests)
        await asyncio.to_thread(_check_model, scratch, plan)
        fed.blobs.adopt(scratch, sha256)
        return fed.runs.create(plan, sha256)
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


async def _receive(
    fed: Federation, scratch: Path, size: int, sha256: str, requests: AsyncIterator[operations_pb2.SubmitMessage]
) -> None:
    limit = fed.config.limits.max_model_bytes
    if size > limit:
        raise MessageTooLarge(f"the model has {size} bytes, this server takes at most {limit}")
    if shutil.disk_usage(scratch.parent).free < 2 * size:
        raise DiskFull(f"a model of {size} bytes does not fit on the server's disk")
    seen, received = hashlib.sha256(), 0
    with storing("storing the initial model"), scratch.open("wb") as file:
        while received < size:
            message = await next_in_time(requests)
            if message is None or message.WhichOneof("body") != "chunk":
                raise CorruptTransfer(f"the model ended after {received} of {size} bytes")
            data = message.chunk.data
            if not data or message.chunk.offset != received or received + len(data) > size:
                raise CorruptTransfer(f"a chunk at byte {message.chunk.offset} does not fit the model")
            file.write(data)
            seen.update(data)
            received += len(data)
    if seen.hexdigest() != sha256:
        raise CorruptTransfer("the model's bytes do not have the digest announced", hint="submit it again")
    with storing("storing the initial model"):
        await asyncio.to_thread(sync_file, scratch)


def _check_model(path: Path, plan: Plan) -> None:
    try:
        model = ModelFile.open(path)
        require_protectable_model(plan, model.layout, SECURE_BYTES)
        model.require_finite()
    except FoedusError as error:
        raise ConfigError(str(error).replace(str(path), "the initial model"), hint=error.hint) from None
