"""``policy.toml``: what a site allows. What is not named is refused; a refusal is a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import time
from typing import Annotated

from pydantic import Field, PositiveInt, field_validator

from ..configuration import Settings
from ..errors import BudgetExhausted, PolicyRefused, SiteVeto
from ..plan import PROTECTIONS, Name, Protection
from ..privacy.secagg.descriptor import Mode
from ..privacy.secagg.policy import SumPolicy
from .config import quoted
from .query_settings import QuerySettings

ANY_CODE = "any"
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-(?:([01]\d|2[0-3]):([0-5]\d)|24:00)")


class TaskPolicy(Settings):
    """An allowed task: the SHA-256 of the code that was looked at, or "any"."""

    code_sha256: Annotated[str, Field(pattern=r"^(any|[0-9a-f]{64})$")]


class SumSettings(Settings):
    """What a site demands of a secure sum, whatever the server asks for.

    Attributes:
        min_sites: fewest sites at any stage.
        min_survivors: fewest sites in a sum.
        min_honest: fewest sites beside those that may collude with the server.
        colluding_percent: how many of the sites must be assumed to collude.
        colluding_percent_in_groups: the same where sums are over groups, since all of them may be in one.
        regrouping: whether groups may be drawn anew in every round, which lets more be worked out.
        unequal_weights: whether a sum may weigh one update more than another, which can show the whole of one.
        min_noise_multiplier: least noise in a sum, in units of the clip norm.
        smallest_clip_norm, largest_clip_norm: what an update may be clipped to.
    """

    min_sites: PositiveInt = 5
    min_survivors: PositiveInt = 5
    min_honest: Annotated[int, Field(ge=2)] = 3
    colluding_percent: Annotated[int, Field(ge=0, lt=100)] = 20
    colluding_percent_in_groups: Annotated[int, Field(ge=0, lt=100)] = 20
    regrouping: bool = False
    unequal_weights: bool = False
    min_noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    smallest_clip_norm: Annotated[float, Field(gt=0)] = 1e-6
    largest_clip_norm: Annotated[float, Field(gt=0)] = 1e6


class Policy(Settings):
    """What a site allows.

    Attributes:
        tasks: the tasks that may run; none unless named.
        hours: "20:00-06:00" in local time, the end excluded; None is always.
        smallest_cohort: refuse a round with fewer sites, in which one update could be guessed.
        max_rounds: refuse to train in more rounds of one run than this; None is no limit.
        protections: how its updates may be protected; where "none" is not among them, the server never
            sees one.
        secure: what it demands of a secure sum.
        analytics: which questions about its records it answers; none, unless columns are named.
    """

    tasks: dict[Name, TaskPolicy] = Field(default_factory=dict)
    hours: str | None = None
    smallest_cohort: PositiveInt = 1
    max_rounds: PositiveInt | None = None
    protections: tuple[Protection, ...] = PROTECTIONS
    secure: SumSettings = SumSettings()
    analytics: QuerySettings = QuerySettings()

    def for_sums(self) -> SumPolicy:
        """The same as ``privacy.secagg`` asks it."""
        wanted = self.secure
        return SumPolicy(
            modes=frozenset(Mode[name.upper()] for name in self.protections if name != "none"),
            min_sites=wanted.min_sites,
            min_survivors=wanted.min_survivors,
            min_honest=wanted.min_honest,
            colluding_percent=wanted.colluding_percent,
            colluding_percent_in_groups=wanted.colluding_percent_in_groups,
            regrouping=wanted.regrouping,
            unequal_weights=wanted.unequal_weights,
            min_noise_multiplier=wanted.min_noise_multiplier,
            clip_norms=(wanted.smallest_clip_norm, wanted.largest_clip_norm),
        )

    @field_validator("hours")
    @classmethod
    def _two_times(cls, hours: str | None) -> str | None:
        if hours is not None and not _HOURS.fullmatch(hours):
            raise ValueError("hours are written like 20:00-06:00")
        if hours is not None and len(set(hours.split("-"))) == 1:
            raise ValueError("hours that end when they begin are empty; leave them out to allow every hour")
        return hours


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRequest:
    """What a policy is asked about.

    Attributes:
        task: the task the server names.
        code_sha256: the digest of that task's code as installed here.
        cohort_size: how many sites are asked in this round.
        rounds_done: in how many rounds of this run the site has trained before.
        rounds: how many rounds the run plans.
        local_time: the site's wall clock.
        trains: False for an evaluation, which spends no round.
        protection: of the update.
    """

    task: str
    code_sha256: str
    cohort_size: int
    rounds_done: int
    rounds: int
    local_time: time
    trains: bool = True
    protection: Protection = "none"


@dataclass(frozen=True, slots=True)
class Refusal:
    """No, and why: ``code`` names an error class, ``reason`` is one sentence for the operator."""

    code: str
    reason: str


def check(policy: Policy, request: WorkRequest) -> Refusal | None:
    """The site's answer to a request: None is yes."""
    allowed = policy.tasks.get(request.task)
    if allowed is None:
        return _no(SiteVeto, f"the site's policy does not allow the task {request.task}")
    if allowed.code_sha256 not in (ANY_CODE, request.code_sha256):
        return _no(
            SiteVeto,
            f"the code of task {request.task} changed since the site allowed it: its digest is "
            f"{request.code_sha256[:12]}…, allowed is {allowed.code_sha256[:12]}…",
        )
    if policy.hours is not None and not within(policy.hours, request.local_time):
        return _no(SiteVeto, f"it is {request.local_time:%H:%M} at the site, which works {policy.hours} only")
    if refusal := check_round(policy, request.cohort_size, request.protection if request.trains else None):
        return refusal
    if request.trains and policy.max_rounds is not None and request.rounds_done >= policy.max_rounds:
        return _no(
            BudgetExhausted,
            f"the site has trained in {request.rounds_done} of the run's {request.rounds} rounds, "
            f"its policy allows {policy.max_rounds}",
        )
    return None


def check_round(policy: Policy, cohort_size: int, protection: Protection | None) -> Refusal | None:
    """The site's answer to what every round of a plan has in common, with a protection if it trains: None is yes."""
    if cohort_size < policy.smallest_cohort:
        return _no(
            SiteVeto, f"the round asks {cohort_size} sites, the site's policy demands at least {policy.smallest_cohort}"
        )
    if protection is not None and protection not in policy.protections:
        return _no(
            SiteVeto, f"the run's protection is {protection}, the site's policy allows {', '.join(policy.protections)}"
        )
    return None


def within(hours: str, moment: time) -> bool:
    """Whether a local time lies in ``hours``, which may reach over midnight."""
    start, end = (_minutes(part) for part in hours.split("-"))
    now = moment.hour * 60 + moment.minute
    return start <= now < end if start < end else now >= start or now < end


def policy_toml(allowed: Mapping[str, str]) -> str:
    """The text of a new ``policy.toml`` that allows the given tasks with exactly this code."""
    lines = [
        "# What this site allows. A task that is not named here is refused.",
        '# hours = "20:00-06:00"     # local time; outside of it all work is refused',
        "# smallest_cohort = 3       # refuse rounds with fewer sites",
        "# max_rounds = 100          # refuse to train in more rounds of one run",
        '# protections = ["masks"]   # refuse runs in which the server would see this site\'s updates',
    ]
    for task, code in allowed.items():
        lines += ["", f"[tasks.{quoted(task)}]", f"code_sha256 = {quoted(code)}"]
    return "\n".join(lines) + "\n"


def _no(kind: type[PolicyRefused], reason: str) -> Refusal:
    return Refusal(kind.__name__, reason)


def _minutes(text: str) -> int:
    hour, minute = text.split(":")
    return int(hour) * 60 + int(minute)
