import asyncio
import sys
import threading

import pytest
from foedus.client_sdk.task_code import run_task_code
from foedus.errors import TaskFailed


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration(), GeneratorExit()]
)
async def test_what_would_end_the_site_is_a_failed_task(error):
    def code():
        raise error

    with pytest.raises(TaskFailed, match=type(error).__name__):
        async with asyncio.timeout(20):
            await run_task_code(code)


async def test_sys_exit_names_its_status():
    with pytest.raises(TaskFailed, match="SystemExit: 3"):
        await run_task_code(sys.exit, 3)


async def test_errors_and_results_pass_in_another_thread():
    assert await run_task_code(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await run_task_code(lambda: 1 / 0)
