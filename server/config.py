"""The server's settings and the layout of its home directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from ..configuration import Settings
from ..files import lock_folder
from ..plan import Decay, Name

DAY_SECONDS = 86_400.0


class Limits(Settings):
    """Bounds that hold whatever a caller asks for.

    Attributes:
        max_model_bytes: the largest initial model.
        calls_per_second: calls and session messages of one caller, a stranger's by its address.
        burst: how many of them may come at once.
        open_calls: how many calls of one caller may be open at once.
    """

    max_model_bytes: PositiveInt = 64 << 30
    calls_per_second: Annotated[float, Field(gt=0)] = 50.0
    burst: PositiveInt = 200
    open_calls: PositiveInt = 100


class Reputation(Settings):
    """What is remembered of rejected updates, and how many of them are too many.

    Attributes:
        memory: after each round that judged a site, its rejection rate is ``memory`` times what it was,
            plus 1 - ``memory`` if its update was rejected.
        suspend_above: the server suspends a site whose rate exceeds this; unset, it suspends none.
        after_rounds: so many rounds must have judged a site since it was last approved.
    """

    memory: Decay = 0.9
    suspend_above: Annotated[float, Field(gt=0, lt=1)] | None = None
    after_rounds: PositiveInt = 10


class Aggregation(Settings):
    """Where updates are combined.

    Attributes:
        engine: "threads" of the server itself, or a "ray" cluster whose machines see the server's
            home under the same path; the model is the same bit for bit.
        threads: how many threads; unset, one per core, eight at most.
        ray_address: of the cluster, as for ``ray.init``; unset, the one that RAY_ADDRESS names, or
            one started on this machine.
    """

    engine: Literal["threads", "ray"] = "threads"
    threads: PositiveInt | None = None
    ray_address: str | None = None


class ServerConfig(Settings):
    """``server.toml``.

    Attributes:
        federation: the name in every certificate.
        listen: the one address sites and operators dial.
        address: the same as they see it; it goes into invitations.
        hostnames: further names or IP addresses for the server's certificate.
        web: where /livez, /readyz and /metrics listen, in the clear: keep it on loopback.
        heartbeat_seconds: how often sites give a sign of life.
        certificate_seconds: life of site, operator and server certificates; they renew themselves
            after two thirds of it.
        drain_seconds: how long SIGTERM waits for transfers that are under way.
        reflection: serve gRPC reflection (to operators).
    """

    federation: Name
    listen: str = "0.0.0.0:8443"
    address: str
    hostnames: tuple[str, ...] = ()
    web: str = "127.0.0.1:8444"
    heartbeat_seconds: Annotated[float, Field(gt=0, le=3600)] = 5.0
    certificate_seconds: Annotated[float, Field(ge=2)] = 7 * DAY_SECONDS
    drain_seconds: Annotated[float, Field(ge=0)] = 20.0
    reflection: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    limits: Limits = Limits()
    reputation: Reputation = Reputation()
    aggregation: Aggregation = Aggregation()


@dataclass(frozen=True, slots=True)
class ServerHome:
    """Where everything of one server is."""

    folder: Path

    @property
    def config(self) -> Path:
        """The settings."""
        return self.folder / "server.toml"

    def lock(self) -> int:
        """Keep the home for this process until the descriptor returned is closed.

        Raises:
            StoreError: another process works in it.
        """
        return lock_folder(self.folder, hint="stop the foedus server that runs in this home, or name another home")

    @property
    def authority_key(self) -> Path:
        """The federation's signing key."""
        return self.folder / "authority.key"

    @property
    def authority(self) -> Path:
        """The federation's root certificate."""
        return self.folder / "authority.pem"

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.folder / "state" / "foedus.db"

    @property
    def blobs(self) -> Path:
        """Models."""
        return self.folder / "state" / "blobs"

    @property
    def inbox(self) -> Path:
        """Updates received."""
        return self.folder / "state" / "inbox"

    @property
    def operator(self) -> Path:
        """The first operator's credentials."""
        return self.folder / "operator"
