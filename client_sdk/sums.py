"""A site's part in secure sums: the server's messages are answered as they come, whatever else the site is doing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, FoedusError, PolicyRefused, SecureSumFailed, StoreError
from ..files import storing
from ..logs import log_event
from ..privacy.analytics.query import Query
from ..privacy.secagg.codes import AbortCode
from ..privacy.secagg.codes import Refusal as SumRefusal
from ..privacy.secagg.descriptor import Mode, SessionDescriptor
from ..privacy.secagg.member import Local
from ..privacy.secagg.messages import Fetch, unframe
from ..privacy.secagg.quantise import MAX_WEIGHT
from ..privacy.secagg.sharing_messages import max_session_message_bytes
from ..privacy.secagg.signing import Kind
from ..privacy.secagg.state import Stage, Step
from ..protos.config_digest import config_sha256, training_sha256
from ..protos.messages import Assignment, Question, Refusal, SecureMessage, SiteMessage, Work
from .home import SiteHome
from .sum_steps import SumSteps, Update
from .sum_store import SumStore

log = logging.getLogger(__name__)

MAX_WAITING = 64  # messages of the server, each of ``SECURE_BYTES`` at most
_LEAVING = {Mode.SHARES: (Stage.SETTLED, Stage.DEALT)}  # where the update leaves, or may leave again
MODEL_REUSED = "; two sums from one model tell updates apart, so begin with a model that nobody has trained from"


@dataclass(frozen=True, slots=True)
class Expected:
    """Work that the site was asked for.

    Attributes:
        order: the latest.
        local: what it knows of the work by itself; None until it has found that it may do it.
        query: what a question asks.
    """

    order: Assignment | Question
    local: Local | None = None
    query: Query | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of the server, and the order that was the latest when it came: it may be of an earlier attempt by the
    time that it is answered."""

    message: SecureMessage
    order: Assignment | Question | None


@dataclass(slots=True)
class Sums:
    """Sessions of one site.

    Args:
        home: where the site's keys and policy are; the policy is read anew for each message.
        store: its states.
        say: sends on the session, or drops the message while there is none; the server asks again.
        refused: told of work whose secure sum this site has left.
        kept: reads the update that was masked in a session, for as long as the round is not over.
        fetch: fetches a message that is too long for the session, given its digest in hex and its size.
    """

    home: SiteHome
    store: SumStore
    say: Callable[[SiteMessage], None]
    refused: Callable[[Work], None]
    kept: Callable[[SessionDescriptor], npt.NDArray[np.float32]]
    fetch: Callable[[str, int], Awaitable[bytes]]
    _steps: SumSteps = field(init=False)
    _expected: dict[Work, Expected] = field(default_factory=dict)
    _early: dict[Work, SecureMessage] = field(default_factory=dict)
    _current: dict[Work, bytes] = field(default_factory=dict)  # sid of what was answered since the assignment
    _queue: asyncio.Queue[Heard] = field(default_factory=lambda: asyncio.Queue(MAX_WAITING))
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._steps = SumSteps(self.home, self.store, self.kept)

    def announce(self, order: Assignment | Question) -> None:
        """Work has come, for another attempt perhaps: what was said about an earlier one counts no more."""
        self._expected[order.work] = Expected(order)
        self._current.pop(order.work, None)

    async def expect(self, order: Assignment | Question, local: Local, query: Query | None = None) -> None:
        """The site may do this work, if it is the latest: its sum is joined when the offer comes, or has come.

        Raises:
            ConfigError: this site can be in no secure sum.
        """
        work = order.work
        self._steps.member()
        if work not in self._expected or self._expected[work].order is not order:
            return
        self._expected[work] = Expected(order, local, query)
        if (early := self._early.pop(work, None)) is not None:
            await self.hear(early)

    async def hear(self, message: SecureMessage) -> None:
        """Take a message of the server, as soon as those before it leave room."""
        await self._queue.put(Heard(message, self._order(message.work)))

    async def run(self) -> None:
        """Answer one message after the other, until cancelled."""
        while True:
            heard = await self._queue.get()
            message = heard.message
            try:
                async with self._turn:
                    await self._answer(heard)
            except (ConfigError, StoreError) as error:  # ours to mend
                self._refuse(message.work, error.code, str(error))
            except FoedusError as error:  # no message, or none of a session that is under way
                log_event(log, "message_refused", logging.WARNING, work=str(message.work), reason=str(error))
            except Exception as error:  # noqa: BLE001  (a bug must not make the site deaf to this sum, and all others)
                log_event(log, "message_failed", logging.ERROR, error=error, work=str(message.work))
            news, self._news = self._news, asyncio.Event()
            news.set()

    async def masked(
        self, order: Assignment | Question, update: Callable[[SessionDescriptor], Update], weight: int | None = None
    ) -> Step:
        """Wait until shares are dealt, then mask an update, or the counters of a query; or share an update as it is.

        Args:
            order: what it was made for: it enters no session that was joined for another order.
            update: reads it, in a thread.
            weight: in the sum; None where it is not weighted.

        Returns:
            A step without a reply where there is nothing to send: the session has the update, or this site has left.

        Raises:
            InvalidUpdate: the update cannot be used.
            StoreError: it cannot be read, or the state not be kept.
        """
        work = order.work
        while True:
            async with self._turn:
                state = await asyncio.to_thread(self.store.find, work.run, work.round)
                joined = state is not None and state.descriptor.sid == self._current.get(work)
                if state is not None and joined and _same_work(self._order(work), order):
                    if state.stage in _LEAVING.get(state.descriptor.mode, (Stage.DELIVERED, Stage.MASKED)):
                        step = await asyncio.to_thread(self._steps.mask, state, update, weight)
                        if step.refusal is not None:
                            self._leave(work, step.refusal)
                        return step
                    if state.stage >= Stage.ACKED:
                        return Step(state)
                news = self._news
            await news.wait()

    def forget(self, run: str, through: int) -> None:
        """The rounds of a run up to one are over."""
        for known in (self._expected, self._early, self._current):
            for work in [work for work in known if work.run == run and work.round <= through]:
                del known[work]
        self.store.forget(run, through)

    def _order(self, work: Work) -> Assignment | Question | None:
        return self._expected[work].order if work in self._expected else None

    async def _answer(self, heard: Heard) -> None:
        message = heard.message
        work, body = message.work, await self._whole(message)
        kind, sid, _ = unframe(body)
        if kind is Kind.OFFER:
            expected = self._expected.get(work)
            if expected is None or expected.local is None:
                self._keep_early(message)
                return
            step = await asyncio.to_thread(self._steps.join, body, work, expected.local, expected.query)
        else:
            state = await asyncio.to_thread(self.store.find, work.run, work.round)
            if state is None or state.descriptor.sid != sid:
                raise SecureSumFailed("the message is of a session that this site has not joined")
            step = await asyncio.to_thread(self._steps.answer, state, body)
        if isinstance(step, SumRefusal):
            self._leave(work, step)
        elif step.refusal is not None:
            log_event(log, "message_refused", logging.WARNING, work=str(work), reason=step.refusal.reason)
            if step.state.stage is Stage.ENDED:
                self._leave(work, step.refusal)
        else:
            if self._order(work) is heard.order:
                self._current[work] = step.state.descriptor.sid  # of its group, where there are groups
            if kind is Kind.SURVIVORS:
                step = await asyncio.to_thread(self._steps.sketch, step)
            if step.reply:
                self.say(SecureMessage(work, step.reply))

    async def _whole(self, message: SecureMessage) -> bytes:
        """What the server says, fetched if it is longer than a session carries.

        Raises:
            SecureSumFailed: it is longer than anything in a session that this site has joined.
            FoedusError: it cannot be fetched.
        """
        kind, sid, body = unframe(message.body)
        if kind is not Kind.FETCH:
            return message.body
        wanted = Fetch.from_bytes(body)
        state = await asyncio.to_thread(self.store.find, message.work.run, message.work.round)
        most = 0 if state is None or state.descriptor.sid != sid else max_session_message_bytes(state.descriptor)
        if wanted.num_bytes > most:
            raise SecureSumFailed(f"a message to be fetched has {wanted.num_bytes} bytes, at most {most} are expected")
        return await self.fetch(wanted.sha256.hex(), wanted.num_bytes)

    def _keep_early(self, offer: SecureMessage) -> None:
        """Until the desk has asked the policy; the oldest makes room, should the server offer without end."""
        while len(self._early) >= MAX_WAITING:
            del self._early[next(iter(self._early))]
        self._early[offer.work] = offer

    def _leave(self, work: Work, refusal: SumRefusal) -> None:
        if refusal.code is AbortCode.LATE:
            self.refused(work)  # the server knows
            return
        code = PolicyRefused if refusal.code in (AbortCode.POLICY, AbortCode.ALREADY_REVEALED) else SecureSumFailed
        mend = MODEL_REUSED if refusal.reason.startswith("model-reused") else ""
        self._refuse(work, code.__name__, f"{refusal.code}: {refusal.reason}{mend}")

    def _refuse(self, work: Work, code: str, reason: str) -> None:
        log_event(log, "secure_sum_left", logging.WARNING, work=str(work), code=code, reason=reason)
        self.say(Refusal(work, code, reason))
        self.refused(work)


def local_of(order: Assignment, num_coordinates: int) -> Local:
    """What a site knows by itself of training, whose layout has so many trainable values."""
    return Local(
        num_coordinates=num_coordinates,
        layout_digest=bytes.fromhex(order.layout_sha256),
        model_digest=bytes.fromhex(order.model_sha256),
        config_digest=config_sha256(order),
    )


def _same_work(latest: Assignment | Question | None, order: Assignment | Question) -> bool:
    """Whether what was made for an order is what the latest one asks for, in another attempt perhaps."""
    if isinstance(latest, Assignment) and isinstance(order, Assignment):
        return training_sha256(latest) == training_sha256(order)
    return latest == order


def read_update(path: Path, num_coordinates: int) -> npt.NDArray[np.float32]:
    """The float32 differences with which an update's file begins.

    Raises:
        StoreError: it cannot be read.
    """
    with storing(f"reading {path}"):
        return np.fromfile(path, "<f4", num_coordinates)


def weight_of(num_examples: int, examples_per_weight: int) -> int:
    """What an update weighs in a weighted sum: whole units of so many examples, rounded up, 1024 at most."""
    return min(MAX_WEIGHT, -(-num_examples // examples_per_weight))
