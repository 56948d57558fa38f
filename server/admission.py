"""What an update must be to be taken: of a site that was asked, from the round's model, of the right size, in time."""

from __future__ import annotations

from ..errors import InvalidUpdate, LayoutMismatch, StaleRound
from ..layout import Layout
from ..privacy.secagg.signing import Signed
from ..protos.messages import Receipt, UploadHeader
from .federation import Federation
from .history import Participation, Round, RoundState, Run, Verdict
from .sum_state import bytes_expected, is_of


def decided(part: Participation, header: UploadHeader) -> Receipt | None:
    """The receipt of a site whose part in a round has been decided already; None where it has not been."""
    if part.verdict in (Verdict.ACCEPTED, Verdict.LATE) and part.sha256 is not None:
        if part.sha256 == header.sha256:
            return Receipt(True)
        return Receipt(False, StaleRound.__name__, "another update of the same site was already accepted")
    if part.verdict in (Verdict.REJECTED, Verdict.REFUSED, Verdict.LATE):
        return Receipt(False, part.code or StaleRound.__name__, part.reason or f"the site was {part.verdict}")
    return None


def require_current(fed: Federation, header: UploadHeader, round: Round) -> None:
    """That an update is masked for the session under way. It is not decided otherwise: its site masks it again.

    Raises:
        StaleRound: it is not, or the next attempt's session has yet to be opened.
        SecureSumFailed: what the site has signed is no message.
    """
    session = fed.sums.current(header.work)
    if session.attempt != round.attempt or not is_of(session.state, Signed.from_bytes(header.masked).sid):
        raise StaleRound("the update was masked for another attempt at this round")


def is_late(fed: Federation, run: Run, round: Round, site: str, header: UploadHeader, layout: Layout) -> bool:
    """Whether an update, otherwise in order, is late.

    Args:
        fed: the server's state.
        run: which it is for.
        round: the one that it was made in.
        site: whose it is.
        header: what it claims to be.
        layout: the run's.

    Raises:
        StaleRound: it starts from another model, or nobody waits for it any more.
        LayoutMismatch: it has another layout, or not the size that its layout needs.
        InvalidUpdate: it is not protected as the run asks.
    """
    if run.state.terminal:
        raise StaleRound(f"run {run.id} is {run.state}")
    if header.model_sha256 != round.base_sha256:
        raise StaleRound(
            f"the update starts from model {header.model_sha256[:12]}…, round {round.number} from "
            f"{round.base_sha256[:12]}…"
        )
    if header.layout_sha256 != layout.digest:
        raise LayoutMismatch("the update's layout is not the run's", hint="train with the code of the initial model")
    expected = _expected_bytes(fed, run, site, header, layout)
    if header.num_bytes != expected:
        raise LayoutMismatch(f"the update has {header.num_bytes} bytes, its layout needs {expected}")
    if round.state is RoundState.COLLECTING:
        return False
    if run.plan.cohort.late == "drop":
        raise StaleRound(f"round {round.number} has closed, and late updates are dropped")
    newest = fed.rounds.last(run.id)
    open_next = newest is not None and (newest.number, newest.state) == (round.number + 1, RoundState.COLLECTING)
    if open_next or newest == round:
        return True
    raise StaleRound(f"round {round.number} has closed, and so has the one after it")


def _expected_bytes(fed: Federation, run: Run, site: str, header: UploadHeader, layout: Layout) -> int:
    """How large the file is: an update, or what stands for it in the secure sum that is under way.

    Raises:
        InvalidUpdate: it is not protected as the run asks.
        StaleRound: the sum is without this site.
    """
    if bool(header.masked) != (run.plan.protection != "none"):
        raise InvalidUpdate(
            f"the update is {'' if header.masked else 'not '}masked, the run's protection is {run.plan.protection}"
        )
    if not header.masked:
        return layout.update_bytes
    session = fed.sums.current(header.work)
    return bytes_expected(session.state, session.id_of(site) or b"")
