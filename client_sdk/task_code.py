"""A task's own code, in a thread of its own, so that nothing it does ends the site."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..errors import TaskFailed

P = ParamSpec("P")
T = TypeVar("T")


async def run_task_code(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``function`` in a thread; its errors pass through.

    Raises:
        TaskFailed: it raised what means something else to an event loop: ``SystemExit`` would end
            the process, ``CancelledError`` the task that waits, and ``StopIteration`` never arrives.
    """

    def call() -> T:
        try:
            return function(*args, **kwargs)
        except StopIteration as error:
            raise TaskFailed(f"StopIteration: {error}") from error
        except Exception:
            raise
        except BaseException as error:
            raise TaskFailed(f"{type(error).__name__}: {error}") from error

    return await asyncio.to_thread(call)
