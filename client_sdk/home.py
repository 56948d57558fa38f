"""A site's home: the folder with its key, its configuration and its durable state."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import grpc

from ..errors import ConfigError
from ..files import private_folder
from ..protos.channel import secure_channel


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a member of a federation presents and trusts, all PEM."""

    authority_pem: bytes
    certificate_pem: bytes
    key_pem: bytes = field(repr=False)

    def channel(self, address: str) -> grpc.aio.Channel:
        """A channel to the server, as this member. The caller closes it."""
        return secure_channel(
            address,
            authority_pem=self.authority_pem,
            key_pem=self.key_pem,
            certificate_pem=self.certificate_pem,
        )


@dataclass(frozen=True, slots=True)
class SiteHome:
    """The paths of one site (or operator) on this machine."""

    path: Path

    @property
    def key(self) -> Path:
        """The private key; it never leaves this folder."""
        return self.path / "key.pem"

    @property
    def certificate(self) -> Path:
        """The certificate, renewed in place."""
        return self.path / "certificate.pem"

    @property
    def authority(self) -> Path:
        """The federation's authority, pinned when joining."""
        return self.path / "authority.pem"

    @property
    def config(self) -> Path:
        """Where the server is, and which tasks are installed here."""
        return self.path / "site.toml"

    @property
    def policy(self) -> Path:
        """What this site allows."""
        return self.path / "policy.toml"

    @property
    def address(self) -> Path:
        """In an operator's home, which has no ``site.toml``: one line with the server's address."""
        return self.path / "address"

    @property
    def outbox(self) -> Path:
        """Updates on their way to the server."""
        return self.path / "outbox"

    @property
    def models(self) -> Path:
        """Models received, by digest."""
        return self.path / "models"

    @property
    def checkpoints(self) -> Path:
        """What a task keeps to resume inside a round."""
        return self.path / "checkpoints"

    @property
    def status(self) -> Path:
        """What the running client last said of itself."""
        return self.path / "status.json"

    def create(self) -> None:
        """Make the folders that are missing, for their owner alone.

        Raises:
            StoreError: a folder cannot be made.
        """
        for folder in (self.path, self.outbox, self.models, self.checkpoints):
            private_folder(folder)

    def credentials(self) -> Credentials:
        """Read authority, certificate and key.

        Raises:
            ConfigError: this home has not been enrolled, or a file cannot be read.
        """
        return Credentials(self._read(self.authority), self._read(self.certificate), self._read(self.key))

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise ConfigError(
                f"{self.path} is not enrolled in a federation: there is no {path.name}",
                hint="join with 'foedus site join INVITATION'",
            ) from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
