"""What operators do: runs, sites, the server itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from ... import __version__
from ...aggregators.kernel_choice import best_kernel
from ...errors import ConfigError, Draining, NotFound, RunStateError
from ...privacy.identity import Identity
from ...protos.invitation import Invitation
from ...protos.v1 import common_pb2, operations_pb2, operations_pb2_grpc
from .. import query_views, views
from ..access import Context, caller
from ..authority import Authority
from ..exclusion import cut_off
from ..federation import Federation
from ..history import Run, RunState
from ..members import MemberState
from ..queries import Queries
from ..runs import Runs
from .submission import take_submission
from .transfer import chunks

ENDINGS = frozenset(f"run_{state}" for state in RunState if state.terminal)
MAX_INVITATION_SECONDS = 30 * 86_400.0


class OperationsService(operations_pb2_grpc.OperationsServicer):
    """For operators only; ``access`` sees to that."""

    def __init__(
        self, fed: Federation, runs: Runs, queries: Queries, authority: Authority, drain: Callable[[], None]
    ) -> None:
        self._fed = fed
        self._runs = runs
        self._queries = queries
        self._authority = authority
        self._drain = drain
        self.draining = False

    # Runs

    async def SubmitRun(
        self, request_iterator: AsyncIterator[operations_pb2.SubmitMessage], context: Context
    ) -> operations_pb2.Run:
        """Check the plan, take the initial model, create the run and start it."""
        if self.draining:
            raise Draining("the server is draining and takes no new run", hint="submit again after the restart")
        run = await take_submission(self._fed, request_iterator)
        self._fed.feed.publish("run_queued", run=run.id, detail=run.name)
        self._runs.start(run)
        return views.run(self._fed, run)

    async def ListRuns(self, request: operations_pb2.ListRunsRequest, context: Context) -> operations_pb2.ListRunsReply:
        """Every run, oldest first, without its plan: thousands must fit into one message."""
        runs = [views.run(self._fed, run) for run in self._fed.runs.all()]
        for run in runs:
            run.ClearField("plan_json")
        return operations_pb2.ListRunsReply(runs=runs)

    async def ShowRun(self, request: operations_pb2.RunRequest, context: Context) -> operations_pb2.Run:
        """One run."""
        return views.run(self._fed, self._fed.runs.find(request.run))

    async def ListRounds(
        self, request: operations_pb2.RunRequest, context: Context
    ) -> AsyncIterator[operations_pb2.Round]:
        """A run's rounds with who took part in them."""
        who = caller.get()
        for message in views.rounds(self._fed, self._fed.runs.find(request.run)):
            self._fed.registry.authorise(who.identity, who.key_sha256)  # it may have been revoked meanwhile
            yield message

    async def WatchRun(
        self, request: operations_pb2.RunRequest, context: Context
    ) -> AsyncIterator[operations_pb2.RunEvent]:
        """First the run as it stands, then its events, until it ends."""
        fed, who = self._fed, caller.get()
        run = fed.runs.find(request.run)
        happenings = fed.feed.watch()
        # The watch begins before the snapshot is taken, so that nothing falls between the two.
        following = asyncio.ensure_future(anext(happenings, None))
        await asyncio.sleep(0)
        run = fed.runs.find(run.id)
        try:
            yield operations_pb2.RunEvent(unix_seconds=fed.clock.now(), name="watch_began", run=views.run(fed, run))
            ended = run.state.terminal
            while not ended:
                happening = await following
                if happening is None:
                    return
                following = asyncio.ensure_future(anext(happenings, None))
                fed.registry.authorise(who.identity, who.key_sha256)  # it may have been revoked meanwhile
                if happening.run in ("", run.id):
                    ended = happening.name in ENDINGS
                    yield views.happening(fed, fed.runs.find(run.id), happening)
        finally:
            following.cancel()

    async def ChangeRun(self, request: operations_pb2.ChangeRunRequest, context: Context) -> operations_pb2.Run:
        """Pause, resume or stop a run."""
        run = self._fed.runs.find(request.run)
        changed: Run
        match request.action:
            case "pause":
                changed = await self._runs.pause(run.id)
            case "resume":
                if self.draining:
                    raise Draining("the server is draining and resumes no run")
                changed = self._runs.resume(run.id)
            case "stop":
                changed = await self._runs.stop(run.id)
            case _:
                raise RunStateError(f"{request.action!r:.40} is not one of pause, resume, stop")
        return views.run(self._fed, changed)

    async def FetchModel(
        self, request: operations_pb2.FetchModelRequest, context: Context
    ) -> AsyncIterator[common_pb2.Chunk]:
        """A run's last, best or initial model."""
        run, who = views.run(self._fed, self._fed.runs.find(request.run)), caller.get()
        found = {"last": run.last_sha256, "best": run.best_sha256, "initial": run.initial_sha256}
        if request.which not in found:
            raise ConfigError(f"{request.which!r:.40} is not one of last, best, initial")
        if not found[request.which]:
            raise NotFound(f"run {run.id} has no {request.which} model yet")
        for offset, data in chunks(self._fed.blobs.path(found[request.which])):
            self._fed.registry.authorise(who.identity, who.key_sha256)
            yield common_pb2.Chunk(offset=offset, data=data)

    # Queries

    async def SubmitQuery(self, request: operations_pb2.SubmitQueryRequest, context: Context) -> operations_pb2.Query:
        """Check a query and put it to the sites."""
        if self.draining:
            raise Draining("the server is draining and takes no new query", hint="submit again after the restart")
        return query_views.in_list(self._queries.submit(request.query_json))

    async def ShowQuery(
        self, request: operations_pb2.QueryRequest, context: Context
    ) -> AsyncIterator[operations_pb2.Query]:
        """One query, once it has ended if that is asked for."""
        who, stored = caller.get(), await self._queries.ended(request.query, request.wait_seconds)
        for message in query_views.query(stored, self._fed.queries.asked(stored.id)):
            self._fed.registry.authorise(who.identity, who.key_sha256)  # it may have been revoked meanwhile
            yield message

    async def ListQueries(
        self, request: operations_pb2.ListQueriesRequest, context: Context
    ) -> operations_pb2.ListQueriesReply:
        """The newest queries, oldest of them first, without question and answer."""
        newest = self._fed.queries.recent(query_views.MAX_LISTED)
        return operations_pb2.ListQueriesReply(queries=map(query_views.in_list, reversed(newest)))

    # Members

    async def Invite(self, request: operations_pb2.InviteRequest, context: Context) -> operations_pb2.InviteReply:
        """A one-line invitation for a site or a further operator."""
        if request.role not in ("site", "operator"):
            raise ConfigError(f"{request.role!r:.40} is not one of site, operator")
        if not 0 < request.lifetime_seconds <= MAX_INVITATION_SECONDS:
            raise ConfigError(
                f"an invitation cannot last {request.lifetime_seconds:g} s, at most {MAX_INVITATION_SECONDS:g}"
            )
        identity = Identity(self._fed.config.federation, "site" if request.role == "site" else "operator", request.name)
        secret, expires = self._fed.registry.invite(
            identity.name, identity.role, lifetime_seconds=request.lifetime_seconds, approved=request.approved
        )
        invitation = Invitation(
            address=self._fed.config.address,
            name=identity.name,
            role=identity.role,
            authority_pem=self._authority.certificate_pem,
            secret=secret.reveal(),
            expires=expires,
        )
        return operations_pb2.InviteReply(invitation=invitation.encode(), expires_unix_seconds=expires)

    async def ListSites(
        self, request: operations_pb2.ListSitesRequest, context: Context
    ) -> operations_pb2.ListSitesReply:
        """Every member of the federation."""
        members = self._fed.registry.members()
        return operations_pb2.ListSitesReply(sites=[views.member(self._fed, member) for member in members])

    async def ChangeSite(self, request: operations_pb2.ChangeSiteRequest, context: Context) -> operations_pb2.Site:
        """Approve, suspend or revoke a member; the last two take effect on a site's live session too."""
        fed, role = self._fed, request.role or "site"
        if role not in ("site", "operator"):
            raise ConfigError(f"{role!r:.40} is not one of site, operator")
        if role == "operator" and request.action != "approve" and request.name == caller.get().name:
            raise RunStateError(
                "an operator does not suspend or revoke itself", hint="let another operator do it: one must be left"
            )
        member = fed.registry.change(role, request.name, request.action)
        fed.feed.publish(f"{role}_{member.state}", site=member.name)
        if role == "operator":
            return views.member(fed, member)
        if member.state in (MemberState.SUSPENDED, MemberState.REVOKED):
            cut_off(fed, member)
        if member.state is MemberState.REVOKED:
            fed.metrics.site_gone(member.name)
        return views.member(fed, member)

    # The roster

    async def ShowRoster(self, request: operations_pb2.ShowRosterRequest, context: Context) -> operations_pb2.Roster:
        """The newest roster; version 0 and no bytes where there is none."""
        roster = self._fed.rosters.latest()
        return views.roster(roster) if roster else operations_pb2.Roster()

    async def PublishRoster(self, request: operations_pb2.Roster, context: Context) -> operations_pb2.Roster:
        """Take a signed roster as the newest; the version is read from what was signed."""
        roster = self._fed.rosters.publish(request.signed)
        self._fed.feed.publish("roster_published", detail=f"version {roster.version}")
        return views.roster(roster)

    # The server

    async def Status(self, request: operations_pb2.StatusRequest, context: Context) -> operations_pb2.StatusReply:
        """How the server fares."""
        return operations_pb2.StatusReply(
            version=__version__,
            federation=self._fed.config.federation,
            draining=self.draining,
            sites_connected=len(self._fed.sessions),
            runs_active=self._runs.num_active,
            kernel=best_kernel().name,
        )

    async def Drain(self, request: operations_pb2.DrainRequest, context: Context) -> operations_pb2.DrainReply:
        """As SIGTERM: no new work, everything under way is left where a restart takes it up."""
        self._drain()
        return operations_pb2.DrainReply()
