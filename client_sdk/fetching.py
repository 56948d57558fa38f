"""What is fetched from the server: the model of an assignment, held against what was announced and what is installed
here; and messages of secure sums that are too long for a session."""

from __future__ import annotations

import asyncio
import logging

from ..errors import FoedusError, LayoutMismatch, StoreError
from ..files import private_folder, storing
from ..logs import log_event
from ..modelfile import Model, ModelFile
from .backoff import Backoff
from .home import SiteHome
from .job import Interrupted, Job
from .loading import InstalledTask
from .local_state import with_local_buffers
from .task_code import run_task_code
from .transfer import Connect, Moved, download, worth_retrying

log = logging.getLogger(__name__)


async def fetch_model(job: Job, task: InstalledTask, home: SiteHome, connect: Connect, moved: Moved) -> Model:
    """The model that a job starts from, however often the connection breaks.

    Args:
        job: whose.
        task: the one that the job is for.
        home: where models and this site's own buffers are kept.
        connect: the channel of the moment.
        moved: told of each number of bytes that arrived.

    Raises:
        Interrupted: the job was called off.
        LayoutMismatch: the model is not the one announced, or not one of this task.
        StoreError: it cannot be kept here.
        FoedusError: another attempt would fare no better.
    """
    order, backoff = job.assignment, Backoff()
    while True:
        if job.stop.is_set():
            raise Interrupted
        try:
            path = await download(connect, home.models, order.model_sha256, order.model_bytes, moved)
            break
        except FoedusError as error:
            if not worth_retrying(error) or isinstance(error, StoreError):
                raise
            log_event(log, "download_interrupted", work=str(job.work), reason=str(error))
            await job.pause(backoff)
    model = await asyncio.to_thread(lambda: ModelFile.open(path).read())
    if model.layout.digest != order.layout_sha256:
        raise LayoutMismatch("the model received does not have the layout announced")
    expected = await run_task_code(task.task.layout)
    model.layout.require(expected, f"task {order.task!r} at this site")
    if order.local_buffers:
        model = with_local_buffers(model, home.checkpoints, job.work)
    return model


async def fetch_message(home: SiteHome, connect: Connect, sha256: str, num_bytes: int) -> bytes:
    """A message of a secure sum, however often the connection breaks.

    Args:
        home: where it lies until it is whole.
        connect: the channel of the moment.
        sha256: its digest, in hex.
        num_bytes: its size.

    Raises:
        StoreError: it cannot be kept here.
        FoedusError: another attempt would fare no better; the server has no such message for this site any more.
    """
    folder, backoff = private_folder(home.fetched), Backoff()
    while True:
        try:
            path = await download(connect, folder, sha256, num_bytes, lambda _: None)
            break
        except FoedusError as error:
            if not worth_retrying(error) or isinstance(error, StoreError):
                raise
            log_event(log, "download_interrupted", message=sha256, reason=str(error))
            await asyncio.sleep(backoff.next_seconds())
    with storing(f"reading {path}"):
        message = await asyncio.to_thread(path.read_bytes)
        path.unlink()
    return message
