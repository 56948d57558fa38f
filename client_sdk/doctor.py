"""Will this site work? One finding per question, each with its mend."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import socket
import stat
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..aggregators.kernel_choice import best_kernel
from ..clock import Clock
from ..configuration import load
from ..errors import ConnectionFailed, FoedusError, ServerUnreachable
from ..modelfile import model_bytes
from ..privacy.certificates import certifies, expires, read_identity, starts, verify_issued
from ..privacy.secagg.signing import site_id
from ..protos.address import split_address
from ..protos.status import TIME_KEY
from .calls import calling
from .config import RecordsEntry, SiteConfig, TaskEntry
from .home import Credentials, SiteHome
from .loading import load_tasks
from .policy import ANY_CODE, Policy
from .records import read_records

WAIT_SECONDS: Final = 10.0
DAY_SECONDS: Final = 86_400.0
MAX_SKEW_SECONDS: Final = 60.0
# At most one model, one update and one checkpoint of a task lie on the disk at a time.
COPIES: Final = 3
PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY")

_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"  # HealthCheckResponse { status: SERVING }


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question: what was seen and, unless it is well, what to do."""

    name: str
    ok: bool
    detail: str
    mend: str = ""


async def examine(home: SiteHome, clock: Clock) -> list[Finding]:
    """Ask every question that can be asked; what fails does not keep the others from being asked."""
    try:
        config = load(SiteConfig, home.config)
    except FoedusError as error:
        return [_bad("configuration", error)]
    findings = [Finding("configuration", True, f"site {config.name} of {config.federation}")]
    tasks, codes, needed_bytes = check_tasks(config.tasks, home.path)
    findings += [*tasks, check_policy_file(home.policy, codes)]
    if config.records is not None:
        findings.append(check_records(config.records, home.path))
    findings.append(Finding("kernel", True, f"what combines updates on this machine: {best_kernel().name}"))
    findings.append(check_disk(shutil.disk_usage(home.path).free, config.keep_free_bytes + needed_bytes))
    try:
        credentials = home.credentials()
    except FoedusError as error:
        return [*findings, _bad("certificate", error)]
    findings += [check_key(home.key), check_certificate(credentials, clock.now())]
    findings.append(check_signing(home, required=_demands_protection(home.policy)))
    if not any(os.environ.get(name) for name in PROXIES):
        findings.append(await check_port(config.server))
    server, skew = await check_server(config.server, credentials, clock)
    return [*findings, check_clock(credentials.certificate_pem, clock.now(), skew), server]


def check_tasks(entries: Mapping[str, TaskEntry], base_folder: Path) -> tuple[list[Finding], dict[str, str], int]:
    """A finding per task, the digests of those that load, and the bytes the largest one needs."""
    if not entries:
        return [Finding("tasks", False, "no task is installed", "add [tasks.NAME] to site.toml")], {}, 0
    findings, codes, needed_bytes = [], {}, 0
    for name, entry in entries.items():
        label = f"task {name}"
        try:
            installed = load_tasks({name: entry}, base_folder)[name]
            layout = installed.task.layout()
            data = getattr(installed.task, "train_data", None)
            examples = data() if callable(data) else None
        except FoedusError as error:
            findings.append(_bad(label, error))
            continue
        except Exception as error:  # noqa: BLE001  # the site's own code may raise anything
            mend = "run the task's code by itself; are its data where it looks for them?"
            findings.append(Finding(label, False, f"{type(error).__name__}: {error}", mend))
            continue
        codes[name] = installed.code_sha256
        needed_bytes = max(needed_bytes, COPIES * model_bytes(layout))
        detail = f"{layout.num_trainable:,} trainable values, code {installed.code_sha256[:12]}…"
        if isinstance(examples, Sized):
            detail += f", {len(examples):,} examples"
            if not len(examples):
                findings.append(Finding(label, False, detail, "there is nothing to train on: check the task's data"))
                continue
        findings.append(Finding(label, True, detail))
    return findings, codes, needed_bytes


def check_records(entry: RecordsEntry, base_folder: Path) -> Finding:
    """Whether the records that this site may be asked about can be read."""
    try:
        columns = read_records(entry, base_folder).columns
    except FoedusError as error:
        return _bad("records", error, "run the function by itself; are its data where it looks for them?")
    return Finding("records", True, f"{len(columns)} columns: {', '.join(columns)}")


def check_policy_file(path: Path, codes: Mapping[str, str]) -> Finding:
    """Whether the policy can be read and allows an installed task."""
    try:
        return check_policy(load(Policy, path), codes)
    except FoedusError as error:
        return _bad("policy", error)


def check_policy(policy: Policy, codes: Mapping[str, str]) -> Finding:
    """Whether the policy allows at least one installed task with the code it has now."""
    allowed = [n for n, code in codes.items() if n in policy.tasks and policy.tasks[n].code_sha256 in (ANY_CODE, code)]
    if allowed:
        return Finding("policy", True, f"allows {', '.join(allowed)}, {policy.hours or 'at all hours'}")
    changed = [name for name in codes if name in policy.tasks]
    if changed:
        return Finding(
            "policy",
            False,
            f"the code of {changed[0]} is not the code that is allowed",
            f'look at the code; to allow it, set code_sha256 = "{codes[changed[0]]}" in policy.toml',
        )
    mend = "name a task in policy.toml"
    if codes:
        name, code = next(iter(codes.items()))
        mend = f'to allow {name}, add [tasks.{name}] with code_sha256 = "{code}" to policy.toml'
    return Finding("policy", False, "allows none of the installed tasks", mend)


def check_disk(free_bytes: int, needed_bytes: int) -> Finding:
    """Whether there is room for the largest task and what is to be kept free."""
    detail = f"{free_bytes / 1e9:.1f} GB free, {needed_bytes / 1e9:.1f} GB needed"
    return Finding("disk", free_bytes >= needed_bytes, detail, "" if free_bytes >= needed_bytes else "free some space")


def check_key(path: Path) -> Finding:
    """Whether nobody but its owner can read the private key."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return Finding("key", False, f"{path}: {error.strerror}", "join again with a new invitation")
    private = not mode & 0o077
    return Finding("key", private, f"mode {mode:04o}", "" if private else f"chmod 600 {path}")


def check_signing(home: SiteHome, *, required: bool) -> Finding:
    """Whether this site can take part in secure sums; that it cannot is well, unless its policy wants nothing else."""
    name = "secure sums"
    joins = "ask the operator to run 'foedus roster key', and join again with a new invitation"
    try:
        signer, roster_key = home.signer(), home.pinned_roster_key()
    except FoedusError as error:
        return _bad(name, error, "put the file back from a backup, or leave and join again with a new invitation")
    if signer is None:
        wanting = required or roster_key is not None
        return Finding(name, not wanting, f"none for this site: it has no {home.signing_key.name}", joins * wanting)
    private = check_key(home.signing_key)
    if not private.ok:
        return Finding(name, False, f"signing key: {private.detail}", private.mend)
    signs = f"this site signs as {site_id(signer.public_key().public_bytes_raw()).hex()}"
    if roster_key is None:
        detail = f"none for this site: no roster key is pinned, so it can tell no site's key; {signs}"
        return Finding(name, not required, detail, joins * required)
    return Finding(name, True, f"{signs}, rosters are signed by {roster_key.hex()}")


def _demands_protection(policy: Path) -> bool:
    try:
        return "none" not in load(Policy, policy).protections
    except FoedusError:
        return False  # another finding says so


def check_certificate(credentials: Credentials, now: float) -> Finding:
    """Whether the certificate is the federation's, belongs to the key, and lasts."""
    again = "join again with a new invitation"
    try:
        identity = read_identity(credentials.certificate_pem)
        if not verify_issued(credentials.certificate_pem, credentials.authority_pem):
            return Finding("certificate", False, "not issued by the authority in authority.pem", again)
        if not certifies(credentials.certificate_pem, credentials.key_pem):
            return Finding("certificate", False, "belongs to another key than key.pem", again)
    except FoedusError as error:
        return _bad("certificate", error)
    days = (expires(credentials.certificate_pem) - now) / DAY_SECONDS
    if days <= 0:
        return Finding("certificate", False, f"{identity.uri} expired {-days:.1f} days ago", again)
    return Finding("certificate", True, f"{identity.uri}, {days:.1f} days left, renews itself")


@dataclass(frozen=True, slots=True)
class Skew:
    """How far this clock is ahead of the server's (behind, if negative), give or take half a round trip."""

    seconds: float
    within_seconds: float

    @property
    def surely_seconds(self) -> float:
        """The least it can be, without its sign."""
        return max(0.0, abs(self.seconds) - self.within_seconds)


def check_clock(certificate_pem: bytes, now: float, skew: Skew | None) -> Finding:
    """Whether this clock agrees with the server's to a minute.

    Without an answer from the server, whether it can be right at all: a certificate that begins in
    the future was issued in the past. It is backdated by a few minutes, so a small lag passes unseen.
    """
    mend = "set the clock, best by NTP"
    if skew is not None:
        side = "ahead of" if skew.seconds > 0 else "behind"
        detail = f"{abs(skew.seconds):.1f} s {side} the server's, give or take {skew.within_seconds:.1f} s"
        ok = skew.surely_seconds <= MAX_SKEW_SECONDS
        return Finding("clock", ok, detail, "" if ok else mend)
    try:
        behind = starts(certificate_pem) - now
    except FoedusError as error:
        return _bad("clock", error)
    if behind > 0:
        return Finding("clock", False, f"at least {behind:.0f} s behind the server's", mend)
    return Finding("clock", True, "not before the certificate's beginning; the server's time is not known")


async def check_port(address: str) -> Finding:
    """Whether the server's name resolves and its port answers."""
    host, port = split_address(address)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except socket.gaierror as error:
        return Finding("network", False, f"{host} does not resolve: {error.strerror}", "check the name, and DNS here")
    except TimeoutError:
        mend = "let this machine open connections to that port; is there a firewall or a proxy?"
        return Finding("network", False, f"{address} does not answer within {WAIT_SECONDS:.0f} s", mend)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return Finding("network", False, f"{address}: {reason}", "is the server running, and the port right?")
    writer.close()
    return Finding("network", True, f"{address} answers")


async def check_server(address: str, credentials: Credentials, clock: Clock) -> tuple[Finding, Skew | None]:
    """Whether the server takes our certificate, and we its, and it is serving; and the skew, if it told its time."""
    try:
        async with credentials.channel(address) as channel:
            health = channel.unary_unary(_HEALTH, request_serializer=bytes, response_deserializer=bytes)
            with calling():
                asked = clock.now()
                call = health(b"", timeout=WAIT_SECONDS)
                reply = await call
                answered = clock.now()
                skew = measured_skew(dict(await call.trailing_metadata()).get(TIME_KEY), asked, answered)
    except FoedusError as error:
        if isinstance(error, ServerUnreachable):
            mend = "if the network is well, the server refused this certificate: has it expired or been revoked?"
            return Finding("server", False, str(error), mend), None
        return _bad("server", error, "" if isinstance(error, ConnectionFailed) else "ask the operator"), None
    if reply != _SERVING:
        mend = "it starts or drains; try again later"
        return Finding("server", False, "it answers, but takes no work now", mend), skew
    return Finding("server", True, "authenticated on both sides, and serving"), skew


def measured_skew(told: str | bytes | None, asked: float, answered: float) -> Skew | None:
    """The skew, when the server told its time (Unix seconds, as text) between ``asked`` and ``answered`` of ours."""
    try:
        server = float(told or "nan")
    except ValueError:
        return None
    if not math.isfinite(server):
        return None
    return Skew((asked + answered) / 2 - server, (answered - asked) / 2)


def _bad(name: str, error: FoedusError, mend: str = "") -> Finding:
    return Finding(name, False, str(error), error.hint or mend)
