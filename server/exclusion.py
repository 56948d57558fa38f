"""Sites that may no longer take part: what they have open ends at once, and what they owe is not waited for."""

from __future__ import annotations

from ..errors import NotApproved
from .assignments import unanswered
from .federation import Federation
from .history import Verdict
from .members import Member
from .questions import query_work


def cut_off(fed: Federation, member: Member) -> None:
    """End what a site that was suspended or revoked has open, and settle what it was asked and has not sent."""
    reason = f"the site was {member.state}"
    session = fed.sessions.get(member.name)
    if session is not None:
        session.end(reason)
    # Nothing it was asked for and has not sent yet will be taken, not even from a stream that is open.
    for work in unanswered(fed, member.name):
        fed.participations.settle(work, member.name, Verdict.REJECTED, code=NotApproved.__name__, reason=reason)
        fed.collector.settle(member.name, work, accepted=False)
    for stored in fed.queries.unanswered(member.name):
        fed.queries.settle(stored.id, member.name, Verdict.REJECTED, code=NotApproved.__name__, reason=reason)
        fed.collector.settle(member.name, query_work(stored.id), accepted=False)


def suspend_distrusted(fed: Federation) -> None:
    """Suspend every active site whose updates were rejected too often, if the settings say how often that is.

    To be called after a round and when the server starts: one that was killed in between finds the same sites.
    """
    policy = fed.config.reputation
    if policy.suspend_above is None:
        return
    for site, standing in fed.registry.distrusted(policy.suspend_above, policy.after_rounds).items():
        reason = (
            f"its rejection rate is {standing.rejection_rate:.3g} after {standing.rounds_judged} rounds, "
            f"reputation.suspend_above is {policy.suspend_above:g}"
        )
        suspended = fed.registry.change("site", site, "suspend", reason)
        fed.feed.publish("site_suspended", site=site, detail=reason)
        cut_off(fed, suspended)
