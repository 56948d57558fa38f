"""An operator's calls to the server, from a command line or a script."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import grpc

from ..configuration import read_toml, validate
from ..errors import (
    ConfigError,
    ConnectionFailed,
    CorruptTransfer,
    FoedusError,
    PolicyRefused,
    RoundFailed,
    error_classes,
)
from ..files import replacing, sha256_file, write
from ..modelfile import ModelFile
from ..plan import Plan
from ..privacy.analytics.answer import Answers
from ..privacy.analytics.query import Query
from ..privacy.certificates import new_request, renew_at
from ..protos.channel import CHUNK_BYTES
from ..protos.invitation import Invitation
from ..protos.status import from_rpc_error
from ..protos.v1 import common_pb2, enrolment_pb2, enrolment_pb2_grpc, operations_pb2, operations_pb2_grpc
from .credentials import OperatorHome

T = TypeVar("T")

WAIT_SECONDS = 30.0  # for which one call waits for a query
MAX_TOLD = 3  # refusals in one sentence


@asynccontextmanager
async def operations(home: OperatorHome) -> AsyncIterator[operations_pb2_grpc.OperationsStub]:
    """The Operations service as this operator; errors arrive typed, as the server raised them.

    Raises:
        ServerUnreachable: nothing answers at the server's address.
    """
    channel = home.channel()
    try:
        await _renew_if_due(home, channel)
        yield operations_pb2_grpc.OperationsStub(channel)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None
    finally:
        await channel.close(None)


def ask(folder: Path, question: Callable[[operations_pb2_grpc.OperationsStub], Awaitable[T]]) -> T:
    """One question and its answer, with the credentials in ``folder``, for code without an event loop."""

    async def asking() -> T:
        async with operations(OperatorHome(folder)) as stub:
            return await question(stub)

    return asyncio.run(asking())


async def invite(
    stub: operations_pb2_grpc.OperationsStub, request: operations_pb2.InviteRequest, roster_key: bytes = b""
) -> tuple[Invitation, float]:
    """An invitation, and when it expires; it names this operator's roster key, whatever the server put there."""
    reply = await stub.Invite(request)
    invitation = Invitation.decode(reply.invitation)
    if request.role != "site":
        roster_key = b""
    return replace(invitation, roster_key=roster_key), reply.expires_unix_seconds


def read_plan(path: Path) -> tuple[Plan, Path]:
    """A plan file and the initial model that it names.

    Raises:
        ConfigError: the plan is malformed, or names no model.
    """
    plan = validate(Plan, read_toml(path), str(path))
    if not plan.model:
        raise ConfigError(
            f"{path}: model is missing",
            hint="name the initial model's file there, or with --model; 'foedus task init TASK FILE' writes one",
        )
    return plan, path.parent / plan.model


async def submit(stub: operations_pb2_grpc.OperationsStub, plan: Plan, model: Path) -> operations_pb2.Run:
    """Upload the initial model with its plan; the run that was created.

    Raises:
        ConfigError: the model is no usable safetensors file.
    """
    size = await asyncio.to_thread(lambda: ModelFile.open(model).path.stat().st_size)
    sha256 = await asyncio.to_thread(sha256_file, model)

    async def messages() -> AsyncIterator[operations_pb2.SubmitMessage]:
        header = operations_pb2.SubmitHeader(
            plan_json=plan.model_dump_json(exclude={"model"}), model_bytes=size, model_sha256=sha256
        )
        yield operations_pb2.SubmitMessage(header=header)
        with model.open("rb") as file:
            offset = 0
            while data := file.read(CHUNK_BYTES):
                yield operations_pb2.SubmitMessage(chunk=common_pb2.Chunk(offset=offset, data=data))
                offset += len(data)

    run: operations_pb2.Run = await stub.SubmitRun(messages())
    return run


async def show(stub: operations_pb2_grpc.OperationsStub, run: str) -> operations_pb2.Run:
    """A run with its rounds, which are never older than the run's state."""
    shown: operations_pb2.Run = await stub.ShowRun(operations_pb2.RunRequest(run=run))
    async for message in stub.ListRounds(operations_pb2.RunRequest(run=shown.id)):
        if shown.rounds and shown.rounds[-1].number == message.number:
            shown.rounds[-1].MergeFrom(message)
        else:
            shown.rounds.append(message)
    return shown


async def show_query(
    stub: operations_pb2_grpc.OperationsStub, id: str, wait_seconds: float = 0.0
) -> operations_pb2.Query:
    """A query with its answer and who was asked; once it has ended, if that is within so long."""
    shown = operations_pb2.Query()
    async for message in stub.ShowQuery(operations_pb2.QueryRequest(query=id, wait_seconds=wait_seconds)):
        shown.MergeFrom(message)
    return shown


async def run_query(stub: operations_pb2_grpc.OperationsStub, query: Query) -> operations_pb2.Query:
    """Put a query to the sites and wait until it has ended, in an answer or not.

    Raises:
        ConnectionFailed: the server was stopped meanwhile; it goes on with the query after its restart.
    """
    request = operations_pb2.SubmitQueryRequest(query_json=query.model_dump_json())
    shown: operations_pb2.Query = await stub.SubmitQuery(request)
    try:
        while shown.state not in ("answered", "failed"):
            shown = await show_query(stub, shown.id, WAIT_SECONDS)
    except grpc.aio.AioRpcError as error:
        typed = from_rpc_error(error)
        if isinstance(typed, ConnectionFailed):
            hint = f"the query goes on after the server's restart: 'foedus analytics show {shown.id}'"
            raise ConnectionFailed(str(typed), hint=hint) from None
        raise typed from None
    return shown


def answers_of(shown: operations_pb2.Query) -> Answers:
    """The answers of a query that has ended.

    Raises:
        PolicyRefused: it failed, and sites refused it.
        RoundFailed: it failed, or has not ended.
    """
    if shown.state == "answered":
        return Answers.from_json(shown.answer_json)
    refused = [site for site in shown.sites if site.verdict == "refused"]
    told = "".join(f"; {site.site}: {site.reason} ({site.code})" for site in refused[:MAX_TOLD])
    if len(refused) > MAX_TOLD:
        told += f"; and {len(refused) - MAX_TOLD} more: 'foedus analytics show {shown.id}'"
    message = f"query {shown.id} {shown.state}: {shown.reason}{told}"
    if any(issubclass(error_classes().get(site.code, FoedusError), PolicyRefused) for site in refused):
        raise PolicyRefused(message)
    raise RoundFailed(message)


async def ask_query(stub: operations_pb2_grpc.OperationsStub, query: Query) -> Answers:
    """Put a query to the sites; the answers.

    Raises:
        PolicyRefused, RoundFailed, ConnectionFailed: as ``answers_of`` and ``run_query``.
    """
    return answers_of(await run_query(stub, query))


async def fetch(stub: operations_pb2_grpc.OperationsStub, run: str, which: str, path: Path) -> str:
    """Download a model to ``path``, whole or not at all; its digest.

    Raises:
        CorruptTransfer: what came is not the model that the run names.
    """
    shown = await stub.ShowRun(operations_pb2.RunRequest(run=run))
    expected = {"last": shown.last_sha256, "best": shown.best_sha256, "initial": shown.initial_sha256}.get(which, "")
    digest = hashlib.sha256()
    with replacing(path) as file:
        async for chunk in stub.FetchModel(operations_pb2.FetchModelRequest(run=run, which=which)):
            file.write(chunk.data)
            digest.update(chunk.data)
        if expected and digest.hexdigest() != expected:
            raise CorruptTransfer("the model changed while it was fetched", hint="fetch it again")
    return digest.hexdigest()


async def _renew_if_due(home: OperatorHome, channel: grpc.aio.Channel) -> None:
    if renew_at(home.certificate.read_bytes()) > time.time():
        return
    request = new_request(home.key.read_bytes(), "operator")
    stub = enrolment_pb2_grpc.EnrolmentStub(channel)
    reply = await stub.Renew(enrolment_pb2.RenewRequest(request_pem=request.decode()))
    write(home.certificate, reply.certificate_pem)
