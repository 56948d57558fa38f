"""The phases of a secure sum, one after the other, whatever is summed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...protos.messages import SecureMessage, Work
from ..federation import Federation
from ..sums import Session


async def lead(
    fed: Federation,
    work: Work,
    let_go: Callable[[Session], None],
    answers: Callable[[Session], Awaitable[object]],
) -> Session:
    """Lead an open session until its last phase is over: then the sum can be opened, if enough has been said.

    Args:
        fed: the server's state.
        work: what the session is for.
        let_go: tells the sites that it goes on without.
        answers: waits until all that are asked have answered, or the phase's time is over.

    Raises:
        SecureSumFailed: this attempt is over, and nothing was revealed.
        StoreError: something could not be recorded, and has no effect.
    """
    while True:
        session = fed.sums.current(work)
        let_go(session)
        for id in session.state.waiting:
            fed.sessions.send(session.names[id], SecureMessage(work, session.outgoing[id]))
        await answers(session)
        session = fed.sums.current(work)  # another, if what was heard meanwhile could not be recorded
        if session.state.revealing:
            return session
        fed.sums.close(work)
