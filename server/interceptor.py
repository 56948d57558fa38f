"""Around every call: who is it, may it, how long did it take, and errors as statuses."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ..errors import AccessDenied, FoedusError, ProtocolError
from ..logs import log_event
from ..protos.status import TIME_KEY, to_status
from .access import Access, Context, caller
from .telemetry import Metrics

log = logging.getLogger(__name__)

Handler = Any  # grpc.RpcMethodHandler: the library gives its attributes no types


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # takes none at run time
    """Default-deny on every method, including those that nobody has written yet."""

    def __init__(self, access: Access, metrics: Metrics) -> None:
        self._access = access
        self._metrics = metrics

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Wrap the method's handler, whatever its kind."""
        method = details.method
        handler = await continuation(details)
        if handler is None:
            return grpc.unary_unary_rpc_method_handler(self._unknown(method))
        # The bytes are parsed here, after the caller was let in, and not by the library before.
        parse = _parser(handler.request_deserializer)
        if handler.response_streaming:
            inner = handler.stream_stream or handler.unary_stream

            async def streaming(request: Any, context: Context) -> AsyncIterator[Any]:
                async with self._around(method, context):
                    replies = inner(parse(request), context)
                    if inspect.isawaitable(replies):  # it writes its replies to the context, as Health.Watch does
                        await replies
                        return
                    async for reply in replies:
                        yield reply

            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            return make(streaming, None, handler.response_serializer)
        inner = handler.stream_unary or handler.unary_unary

        async def single(request: Any, context: Context) -> Any:
            async with self._around(method, context):
                return await inner(parse(request), context)

        make = (
            grpc.stream_unary_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
        )
        return make(single, None, handler.response_serializer)

    def _unknown(self, method: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def refuse(_request: Any, context: Context) -> Any:
            async with self._around(method, context):
                raise AccessDenied(f"there is no method {method[:120]}")

        return refuse

    @asynccontextmanager
    async def _around(self, method: str, context: Context) -> AsyncIterator[None]:
        begun = time.monotonic()
        try:
            who = self._access.admit(method, context)
            caller.set(who)
            context.set_trailing_metadata(((TIME_KEY, f"{self._access.now():.3f}"),))
            with self._access.open_call(who):
                yield
        except FoedusError as error:
            status, message, metadata = to_status(error)
            if status is grpc.StatusCode.INTERNAL:
                log_event(log, "call_failed", logging.ERROR, error, method=method)
            await context.abort(status, message, metadata)
        except (grpc.aio.AbortError, GeneratorExit):
            raise
        except Exception as error:  # noqa: BLE001  (no input may end the server, nor see its insides)
            log_event(log, "call_broke", logging.ERROR, error, method=method)
            await context.abort(grpc.StatusCode.INTERNAL, "an internal error; the server's log has the details")
        finally:
            self._metrics.rpc_ended(method, time.monotonic() - begun)


def _parser(deserialize: Callable[[bytes], Any]) -> Callable[[Any], Any]:
    """Turns a request, or a stream of them, from bytes into messages; what is none is a ProtocolError."""

    def message(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            raise ProtocolError(f"{len(data)} bytes are not the message that this call takes") from None

    async def messages(stream: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for data in stream:
            yield message(data)

    return lambda request: message(request) if isinstance(request, bytes) else messages(request)
