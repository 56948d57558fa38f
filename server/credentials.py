"""An operator's folder: address, key, certificate and the federation's root."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import grpc

from ..errors import CertificateExpired, ConfigError
from ..files import private_folder, write, write_private
from ..privacy.certificates import expires
from ..protos.channel import secure_channel


@dataclass(frozen=True, slots=True)
class OperatorHome:
    """Where an operator's credentials are."""

    folder: Path

    @property
    def key(self) -> Path:
        """The private key."""
        return self.folder / "key.pem"

    @property
    def certificate(self) -> Path:
        """The certificate, renewed by the commands that use it."""
        return self.folder / "certificate.pem"

    @property
    def authority(self) -> Path:
        """The federation's root certificate."""
        return self.folder / "authority.pem"

    @property
    def address(self) -> Path:
        """One line: where the server is."""
        return self.folder / "address"

    @property
    def roster_key(self) -> Path:
        """The operator's Ed25519 key that signs rosters, unless it is kept elsewhere."""
        return self.folder / "roster.key"

    def write(self, *, address: str, authority_pem: bytes, key_pem: bytes, certificate_pem: bytes) -> None:
        """Write all four."""
        private_folder(self.folder)
        write_private(self.key, key_pem)
        write(self.authority, authority_pem)
        write(self.certificate, certificate_pem)
        write(self.address, f"{address}\n")

    def channel(self) -> grpc.aio.Channel:
        """A channel to the server as this operator.

        Raises:
            ConfigError: the folder holds no credentials.
            CertificateExpired: the certificate is past its end.
        """
        try:
            address = self.address.read_text().strip()
            certificate = self.certificate.read_bytes()
            key, authority = self.key.read_bytes(), self.authority.read_bytes()
        except FileNotFoundError as error:
            raise ConfigError(
                f"there are no operator credentials in {self.folder} ({Path(error.filename).name} is missing)",
                hint="name the folder with --operator or FOEDUS_OPERATOR; 'foedus server init' makes the first one",
            ) from None
        if expires(certificate) <= time.time():
            raise CertificateExpired(
                f"the operator certificate in {self.folder} has expired",
                hint="on the server's machine, 'foedus server operator' issues a new one",
            )
        return secure_channel(address, authority_pem=authority, key_pem=key, certificate_pem=certificate)
