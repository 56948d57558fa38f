"""A site's steps in its secure sums: what it answers, once the state that it is in by then is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..configuration import load
from ..errors import ConfigError, SecureSumFailed
from ..privacy.analytics.query import Query
from ..privacy.analytics.sessions import guarded, require_session
from ..privacy.certificates import read_identity
from ..privacy.secagg.codes import AbortCode, Refusal, refusal_of
from ..privacy.secagg.descriptor import Mode, SessionDescriptor
from ..privacy.secagg.joining import join
from ..privacy.secagg.masking import mask
from ..privacy.secagg.member import Local, Member
from ..privacy.secagg.messages import Offer, unframe
from ..privacy.secagg.sharing_updates import share_update
from ..privacy.secagg.site import receive
from ..privacy.secagg.sketching import share_sketch
from ..privacy.secagg.state import SiteState, Stage, Step
from ..protos.messages import Work
from .home import SiteHome
from .policy import Policy
from .sum_store import SumStore

Update: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SumSteps:
    """One step after the other; each reads and writes files, so that it is to be called in a thread.

    Args:
        home: where the site's keys and policy are; both are read anew for each step.
        store: its states.
        kept: reads the update that was masked in a session, for as long as the round is not over.
    """

    home: SiteHome
    store: SumStore
    kept: Callable[[SessionDescriptor], npt.NDArray[np.float32]]

    def member(self) -> Member:
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

    def join(self, offer: bytes, work: Work, local: Local, query: Query | None) -> Step | Refusal:
        """Answer an offer, or say why it is left alone.

        Raises:
            SecureSumFailed: it is no offer.
            ConfigError, StoreError: this site is not ready for secure sums, or its state cannot be kept.
        """
        if refusal := self._elsewhere(offer, work, query):
            return refusal
        # A query may be asked again; an update of a model may not be summed again.
        used = None if query else self.store.model_used_in(local.model_digest.hex())
        group = self.store.group_in(work.run)
        local = replace(local, model_used_in=used, roster_version=self.store.roster_version(), group=group)
        before = self.store.find(work.run, work.round)
        step = join(offer, self.member(), local, before)
        return self._keep(step, before) if isinstance(step, Step) else step

    def answer(self, state: SiteState, message: bytes) -> Step:
        """Answer a later message of a session.

        Raises:
            FoedusError: as ``receive`` of ``privacy.secagg.site``; ConfigError and StoreError as ``join``.
        """
        member = self.member()
        step = receive(state, message, member)
        if state.descriptor.whole:  # of sites that differ, so many may tell the server what they have sent
            fewest = state.descriptor.colluders + member.policy.min_honest
            step = guarded(step, self.store.answered(), fewest)
        return self._keep(step, state)

    def mask(self, state: SiteState, update: Callable[[SessionDescriptor], Update], weight: int | None) -> Step:
        """Mask an update, or share it as it is, unless its model has been used in another session meanwhile.

        Raises:
            InvalidUpdate: the update cannot be used.
            StoreError: it cannot be read, or the state not be kept.
            ConfigError: as ``join``.
        """
        session = state.descriptor
        used = None if session.whole else self.store.model_used_in(session.model_digest.hex())
        if used not in (None, (session.run, session.round)):  # by a session that was joined beside this one
            refusal = Refusal(AbortCode.POLICY, f"model-reused: it was used in round {used[1]} of run {used[0]}")
            step = Step(state.ended(refusal), refusal=refusal)
        elif session.mode is Mode.SHARES:
            step = share_update(state, update(session), self.member())
        else:
            step = mask(state, update(session), self.member(), weight=weight)
        return self._keep(step, state)

    def sketch(self, step: Step) -> Step:
        """In a session of sketches the answer to who survived is made of the update, which was kept for that.

        Raises:
            InvalidUpdate, StoreError: the update is lost, or another one.
        """
        state = step.state
        if state.descriptor.mode is not Mode.SKETCH or state.stage not in (Stage.SETTLED, Stage.DEALT):
            return step
        return self._keep(share_sketch(state, self.kept(state.descriptor), self.member()), state)

    def _keep(self, step: Step, before: SiteState | None) -> Step:
        if step.state != before:
            self.store.keep(step.state, before)
        return step

    def _elsewhere(self, offer: bytes, work: Work, query: Query | None) -> Refusal | None:
        """Why an offer cannot be of this work, whose state alone it is held against."""
        session = SessionDescriptor.from_bytes(Offer.from_bytes(unframe(offer)[2]).descriptor)
        if (session.run, session.round) != (work.run, work.round):
            reason = f"the session is of round {session.round} of run {session.run}, the assignment of {work}"
            return Refusal(AbortCode.POLICY, reason)
        if self.store.is_over(work.run, work.round):
            return Refusal(AbortCode.ALREADY_REVEALED, f"round {work.round} of run {work.run} is over")
        try:
            if query is not None:
                require_session(query, session)
        except SecureSumFailed as error:
            return refusal_of(error)
        return None
