"""A site's home: the folder with its key, its configuration and its durable state."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import ConfigError
from ..files import private_folder
from ..privacy.signing_keys import public_key, read_signing_key
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
    def signing_key(self) -> Path:
        """The Ed25519 key with which this site signs in secure sums; it never leaves this folder either."""
        return self.path / "signing.pem"

    @property
    def roster_key(self) -> Path:
        """The key that signs rosters, in hex: pinned when joining, never changed afterwards."""
        return self.path / "roster-key.pub"

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
    def sums(self) -> Path:
        """What was said in secure sums."""
        return self.path / "sums"

    @property
    def fetched(self) -> Path:
        """Messages of secure sums that are too long for a session, while they are read."""
        return self.path / "fetched"

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

    def signer(self) -> Ed25519PrivateKey | None:
        """The key with which this site signs; None in a home that has joined without one.

        Raises:
            ConfigError: the file cannot be read, or holds no such key.
        """
        if not self.signing_key.exists():
            return None
        return read_signing_key(self._read(self.signing_key), str(self.signing_key))

    def pinned_roster_key(self) -> bytes | None:
        """The Ed25519 key, 32 bytes, that signs rosters; None if the invitation named none.

        Raises:
            ConfigError: the file cannot be read, or holds no such key.
        """
        if not self.roster_key.exists():
            return None
        return public_key(self._read(self.roster_key).decode(errors="replace").strip(), str(self.roster_key))

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
