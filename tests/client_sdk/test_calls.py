import asyncio

import grpc
import pytest
from foedus.client_sdk.calls import calling
from foedus.errors import ConnectionFailed, ServerUnreachable


async def test_a_call_broken_off_at_this_end_is_a_lost_connection():
    with pytest.raises(ConnectionFailed, match="broken off at this end"), calling():
        raise asyncio.CancelledError


async def test_a_task_that_is_cancelled_in_a_call_is_cancelled():
    begun = asyncio.Event()

    async def call():
        with calling():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_grpc_itself_raises_is_typed():
    with pytest.raises(ServerUnreachable), calling():
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "gone")


async def test_grpc_does_raise_cancelled_when_requests_cannot_be_made():
    """The behaviour of the library that ``calling`` exists for."""

    async def requests():
        raise ValueError("not to be encoded")
        yield b""

    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(ConnectionFailed), calling():
            async for _ in channel.stream_stream("/x/Y")(requests()):
                pass
