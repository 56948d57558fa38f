"""A site's part in secure sums: the server's messages are answered as they come, whatever else the site is doing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..configuration import load
from ..errors import ConfigError, PolicyRefused, SecureSumFailed
from ..logs import log_event
from ..privacy.certificates import read_identity
from ..privacy.secagg.codes import AbortCode
from ..privacy.secagg.codes import Refusal as SumRefusal
from ..privacy.secagg.joining import join
from ..privacy.secagg.masking import mask
from ..privacy.secagg.member import Local, Member
from ..privacy.secagg.messages import unframe
from ..privacy.secagg.quantise import MAX_WEIGHT
from ..privacy.secagg.signing import Kind
from ..privacy.secagg.site import receive
from ..privacy.secagg.state import SiteState, Stage, Step
from ..protos.config_digest import config_sha256
from ..protos.messages import Assignment, Refusal, SecureMessage, SiteMessage, Work
from .home import SiteHome
from .policy import Policy
from .sum_store import SumStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Expected:
    """Work that the site may do, and what it knows of it by itself."""

    assignment: Assignment
    num_coordinates: int


@dataclass(slots=True)
class Sums:
    """Sessions of one site.

    Args:
        home: where the site's keys and policy are; the policy is read anew for each message.
        store: its states.
        say: sends on the session, or drops the message while there is none; the server asks again.
        refused: told of work whose secure sum this site has left.
    """

    home: SiteHome
    store: SumStore
    say: Callable[[SiteMessage], None]
    refused: Callable[[Work], None]
    _expected: dict[Work, Expected] = field(default_factory=dict)
    _early: dict[Work, SecureMessage] = field(default_factory=dict)
    _queue: asyncio.Queue[SecureMessage] = field(default_factory=asyncio.Queue)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def expect(self, assignment: Assignment, num_coordinates: int) -> None:
        """The site may do this work: its secure sum is joined when the offer comes, or has come.

        Raises:
            ConfigError: this site can be in no secure sum.
        """
        self._member()
        self._expected[assignment.work] = Expected(assignment, num_coordinates)
        if (early := self._early.pop(assignment.work, None)) is not None:
            self.hear(early)

    def hear(self, message: SecureMessage) -> None:
        """Take a message of the server."""
        self._queue.put_nowait(message)

    async def run(self) -> None:
        """Answer one message after the other, until cancelled."""
        while True:
            message = await self._queue.get()
            try:
                async with self._turn:
                    await self._answer(message)
            except (SecureSumFailed, ConfigError) as error:
                # Ours to mend, or not a message at all; either way this site goes on.
                log_event(log, "message_refused", logging.WARNING, work=str(message.work), reason=str(error))
            news, self._news = self._news, asyncio.Event()
            news.set()

    async def masked(self, work: Work, path: Path, num_examples: int) -> Step:
        """Wait until shares are dealt, then mask the update in a file.

        Args:
            work: which.
            path: the update: float32 differences first.
            num_examples: what it weighs.

        Raises:
            SecureSumFailed: this site has left the session.
            InvalidUpdate: the update cannot be used.
        """
        while True:
            async with self._turn:
                state = await asyncio.to_thread(self.store.find, work.run, work.round)
                if state is not None and state.stage in (Stage.DELIVERED, Stage.MASKED):
                    return await asyncio.to_thread(self._mask, state, work, path, num_examples)
                if state is not None and state.stage >= Stage.ACKED:
                    reason = state.refusal.reason if state.refusal else "the masks are taken off already"
                    raise SecureSumFailed(f"{work}: {reason}")
                news = self._news
            await news.wait()

    def forget(self, run: str, through: int) -> None:
        """The rounds of a run up to one are over."""
        for work in [work for work in self._expected if work.run == run and work.round <= through]:
            del self._expected[work]
        self.store.forget(run, through)

    def _mask(self, state: SiteState, work: Work, path: Path, num_examples: int) -> Step:
        per_weight = self._expected[work].assignment.examples_per_weight
        weight = weight_of(num_examples, per_weight) if per_weight else None
        update_D = np.fromfile(path, "<f4", state.descriptor.num_coordinates)
        step = mask(state, update_D, self._member(), weight=weight)
        if step.refusal is None:
            self.store.keep(step.state)
        return step

    async def _answer(self, message: SecureMessage) -> None:
        work, body = message.work, message.body
        kind, sid, _ = unframe(body)
        if kind is Kind.OFFER:
            expected = self._expected.get(work)
            if expected is None:
                self._early[work] = message  # until the desk has asked the policy
                return
            step = await asyncio.to_thread(self._join, body, expected)
        else:
            state = await asyncio.to_thread(self.store.find, work.run, work.round)
            if state is None or state.descriptor.sid != sid:
                raise SecureSumFailed("the message is of a session that this site has not joined")
            step = await asyncio.to_thread(self._receive, state, body)
        if isinstance(step, SumRefusal):
            self._leave(work, step)
        elif step.refusal is not None:
            log_event(log, "message_refused", logging.WARNING, work=str(work), reason=step.refusal.reason)
            if step.state.stage is Stage.ENDED:
                self._leave(work, step.refusal)
        elif step.reply:
            self.say(SecureMessage(work, step.reply))

    def _join(self, offer: bytes, expected: Expected) -> Step | SumRefusal:
        order = expected.assignment
        used = self.store.model_used_in(order.model_sha256)
        local = Local(
            num_coordinates=expected.num_coordinates,
            layout_digest=bytes.fromhex(order.layout_sha256),
            model_digest=bytes.fromhex(order.model_sha256),
            config_digest=config_sha256(order),
            model_used_in=used,
            roster_version=self.store.roster_version(),
        )
        step = join(offer, self._member(), local, self.store.find(order.work.run, order.work.round))
        if isinstance(step, Step):
            self.store.keep(step.state)
        return step

    def _receive(self, state: SiteState, body: bytes) -> Step:
        step = receive(state, body, self._member())
        if step.state != state:
            self.store.keep(step.state)
        return step

    def _leave(self, work: Work, refusal: SumRefusal) -> None:
        if refusal.code is AbortCode.LATE:
            return  # the server knows
        code = PolicyRefused if refusal.code in (AbortCode.POLICY, AbortCode.ALREADY_REVEALED) else SecureSumFailed
        log_event(log, "secure_sum_left", logging.WARNING, work=str(work), code=refusal.code, reason=refusal.reason)
        self.say(Refusal(work, code.__name__, f"{refusal.code}: {refusal.reason}"))
        self.refused(work)

    def _member(self) -> Member:
        """Who this site is.

        Raises:
            ConfigError: it has no signing key, or has pinned no roster key.
        """
        federation = read_identity(self.home.certificate.read_bytes()).federation
        key, operator_key = self.home.signer(), self.home.pinned_roster_key()
        if key is None or operator_key is None:
            raise ConfigError(
                f"this site has {'no signing key' if key is None else 'pinned no roster key'}, so it takes part in no "
                "secure sum",
                hint="ask the operator to run 'foedus roster key', and join again with a new invitation",
            )
        return Member(key, federation, operator_key, load(Policy, self.home.policy).for_sums())


def weight_of(num_examples: int, examples_per_weight: int) -> int:
    """What an update weighs in a weighted sum: whole units of so many examples, rounded up, 1024 at most."""
    return min(MAX_WEIGHT, -(-num_examples // examples_per_weight))
