"""The model of an assignment: fetched, and held against what was announced and what is installed here."""

from __future__ import annotations

import asyncio
import logging

from ..errors import FoedusError, LayoutMismatch, StoreError
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
