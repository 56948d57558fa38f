"""An update leaves its site: as it is, or masked once the others' shares have come."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from ..errors import FoedusError, StaleRound
from ..logs import log_event
from ..privacy.secagg.descriptor import SessionDescriptor
from .backoff import Backoff
from .job import Interrupted, Job
from .outbox import Outbox
from .parcel import Parcel
from .sum_steps import Update
from .sums import Sums, read_update, weight_of
from .transfer import Connect, Moved, upload, worth_retrying

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The way of updates from the outbox to the server.

    Args:
        outbox: where they lie until the server has decided.
        sums: this site's part in secure sums.
        connect: the channel of the moment.
        moved: told how many bytes have gone.
    """

    outbox: Outbox
    sums: Sums
    connect: Connect
    moved: Moved

    async def deliver(self, job: Job) -> None:
        """Bring a job's update to the server, however often the connection breaks; nothing, if none lies there.

        Raises:
            Interrupted: the job was called off.
            FoedusError: another attempt would fare no better.
        """
        work, model_sha256, backoff = job.work, job.assignment.model_sha256, Backoff()
        protected = job.assignment.protection != "none"
        parcel = self.outbox.find(work.run, work.round, model_sha256, job.order_sha256)
        while parcel is not None and not job.stop.is_set():
            asked = job.times_asked
            try:
                outgoing = await self._masked(job, parcel) if protected else parcel
                receipt = await upload(self.connect, outgoing, self.moved)
            except FoedusError as error:
                if job.stop.is_set():
                    raise Interrupted from None
                # Masked for an attempt that has failed: it is masked again for the next one, or released.
                stale = protected and isinstance(error, StaleRound)
                if not stale and not worth_retrying(error):
                    raise
                log_event(log, "upload_interrupted", work=str(work), reason=str(error))
                await job.pause(backoff)
                continue
            self.outbox.delivered(work.run, work.round, model_sha256, receipt)
            log_event(log, "update_delivered", work=str(work), accepted=receipt.accepted, reason=receipt.reason)
            if protected and job.times_asked != asked:
                continue  # that receipt may be for an earlier attempt
            if not protected and not receipt.accepted:
                self.outbox.release(work.run, work.round)
            return

    async def _masked(self, job: Job, parcel: Parcel) -> Parcel:
        """The update as it leaves, once the others' shares have come. The same again while the session is the same."""
        per_weight = job.assignment.examples_per_weight
        weight = weight_of(parcel.header.num_examples, per_weight) if per_weight else None

        def update(session: SessionDescriptor) -> Update:
            return read_update(parcel.path, session.num_coordinates)

        masking = asyncio.ensure_future(self.sums.masked(job.assignment, update, weight))
        called_off = asyncio.ensure_future(job.called_off.wait())
        try:
            await asyncio.wait({masking, called_off}, return_when=asyncio.FIRST_COMPLETED)
            if not masking.done():
                raise Interrupted
            step = masking.result()
        finally:
            masking.cancel()
            called_off.cancel()
        if step.reply is None or step.words is None:
            raise Interrupted  # the refusal has been said, or the server has it
        return parcel.masked(step.words.data.cast("B"), step.reply)
