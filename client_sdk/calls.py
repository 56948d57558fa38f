"""Calls to the server: however one ends, it ends in a typed error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from ..errors import ConnectionFailed
from ..protos.status import from_rpc_error


@contextmanager
def calling() -> Iterator[None]:
    """Around a call: what went wrong, as the server raised it, or as a failure of the connection.

    gRPC raises ``CancelledError`` where a call was broken off at this end: its channel was closed,
    or its requests could not be made. Nobody asked *us* to stop then, so the call has just failed.

    Raises:
        FoedusError: the call failed.
        CancelledError: the task that makes the call is to stop.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ConnectionFailed("the call was broken off at this end") from None
