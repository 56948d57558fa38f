"""What a task says about its work, as it may be said to the server: checked once, before it is kept."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidUpdate, ProtocolError, TaskFailed
from ..protos.wire import MAX_EXAMPLES, metrics
from .task import LocalResult, Measurement


def checked_result(result: LocalResult) -> LocalResult:
    """The result with its numbers and metrics as plain Python numbers.

    Raises:
        InvalidUpdate: one of them cannot be sent; it is named.
    """
    try:
        return LocalResult(
            model=result.model,
            num_examples=_count(result.num_examples, "num_examples"),
            num_steps=_count(result.num_steps, "num_steps"),
            metrics=_metrics(result.metrics),
        )
    except ProtocolError as error:
        raise InvalidUpdate(f"what training returned cannot be sent: {error}") from None


def checked_measurement(measured: Measurement) -> Measurement:
    """The measurement with its numbers as plain Python numbers.

    Raises:
        TaskFailed: one of them cannot be sent; it is named.
    """
    try:
        return Measurement(
            num_examples=_count(measured.num_examples, "num_examples"), metrics=_metrics(measured.metrics)
        )
    except ProtocolError as error:
        raise TaskFailed(f"what the evaluation returned cannot be sent: {error}") from None


def _count(number: Any, what: str) -> int:
    try:
        count = operator.index(number)
    except TypeError:
        raise ProtocolError(f"{what} is {str(number)[:80]}, expected a whole number") from None
    if not 0 <= count <= MAX_EXAMPLES:
        raise ProtocolError(f"{what} is {str(count)[:80]}, expected 0 to {MAX_EXAMPLES}")
    return count


def _metrics(values: Mapping[Any, Any]) -> dict[str, float]:
    plain: dict[str, float] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise ProtocolError(f"a metric's name is {str(name)[:80]}, expected text")
        try:
            plain[name] = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ProtocolError(f"metric {name[:80]!r} is {str(value)[:80]}, expected a finite number") from None
    return metrics(plain)
