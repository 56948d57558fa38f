import asyncio
import hashlib
import threading
from contextlib import asynccontextmanager

import grpc
import pytest
from foedus.client_sdk import transfer
from foedus.client_sdk.transfer import download, worth_retrying
from foedus.errors import ConnectionFailed
from foedus.files import hashed
from foedus.protos.v1 import common_pb2, transfer_pb2

MODEL = bytes(range(256)) * 8
DIGEST = hashlib.sha256(MODEL).hexdigest()


@asynccontextmanager
async def serving(stop_after):
    """Sends the model by 512 bytes and, having sent ``stop_after`` of it, falls silent."""
    over = asyncio.Event()
    asked = []

    async def send(request, _context):
        asked.append(request.offset)
        for offset in range(request.offset, len(MODEL), 512):
            if offset == stop_after:
                await over.wait()
            yield common_pb2.Chunk(offset=offset, data=MODEL[offset : offset + 512])

    handler = grpc.unary_stream_rpc_method_handler(
        send, transfer_pb2.DownloadRequest.FromString, common_pb2.Chunk.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("foedus.v1.Transfer", {"Download": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", asked
    finally:
        over.set()
        await server.stop(None)


async def test_a_channel_closed_under_a_download_is_a_lost_connection_and_the_next_goes_on(tmp_path, monkeypatch):
    """As when a certificate was renewed and the old connection's time is up."""
    threads = []
    monkeypatch.setattr(transfer, "hashed", lambda path: (threads.append(threading.current_thread()), hashed(path))[1])
    closing = set()
    async with serving(stop_after=1024) as (address, asked):
        first = grpc.aio.insecure_channel(address)

        moves = []

        def moved(amount):
            moves.append(amount)
            if len(moves) == 2:
                closing.add(asyncio.create_task(first.close(None)))

        with pytest.raises(ConnectionFailed) as failure:
            async with asyncio.timeout(20):
                await download(lambda: first, tmp_path, DIGEST, len(MODEL), moved)
        assert worth_retrying(failure.value)
        await asyncio.gather(*closing)
    assert not (tmp_path / DIGEST).exists()
    async with serving(stop_after=None) as (address, again), grpc.aio.insecure_channel(address) as second:
        path = await download(lambda: second, tmp_path, DIGEST, len(MODEL), moves.append)
    assert path.read_bytes() == MODEL
    assert (asked, again) == ([0], [1024])
    assert sum(moves) == len(MODEL)
    # What is here already may be gigabytes: it is hashed beside the event loop.
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_a_certificate_renewed_while_the_partial_model_is_hashed_costs_nothing(tmp_path, monkeypatch):
    """The retired channel carries no call yet and closes at once: the call must be made on the new one."""
    (tmp_path / f"{DIGEST}.part").write_bytes(MODEL[:512])
    async with serving(stop_after=None) as (address, asked), grpc.aio.insecure_channel(address) as renewed:
        retired = grpc.aio.insecure_channel(address)
        current, loop = [retired], asyncio.get_running_loop()

        async def renew():
            current[:] = [renewed]
            await retired.close(600.0)

        def hashed_slowly(path):
            asyncio.run_coroutine_threadsafe(renew(), loop).result()
            return hashed(path)

        monkeypatch.setattr(transfer, "hashed", hashed_slowly)
        path = await download(lambda: current[0], tmp_path, DIGEST, len(MODEL), lambda _: None)
    assert path.read_bytes() == MODEL
    assert asked == [512]
