"""The operator's key that signs rosters. It belongs on the operator's machine and never on the server's."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..errors import ConfigError
from ..files import private_folder, write_private
from ..privacy.signing_keys import new_signing_key_pem, read_signing_key
from .config import ServerHome
from .credentials import OperatorHome


def make_roster_key(path: Path, *, on_server_anyway: bool = False) -> bool:
    """Make the key, unless there is one; whether it was made.

    Raises:
        ConfigError: ``path`` is inside a server's home.
        StoreError: it cannot be written.
    """
    for folder in path.absolute().resolve().parents:
        if ServerHome(folder).config.exists() and not on_server_anyway:
            raise ConfigError(
                f"{path} is inside the server's home {folder}, expected a place that the server cannot read: "
                "whoever holds this key and the server can invent sites and learn what one site sent",
                hint="name another place with --file, best on another machine; for a trial, add --on-server-anyway",
            )
    if path.exists():
        return False
    private_folder(path.parent)
    write_private(path, new_signing_key_pem())
    return True


def public_roster_key(given: Path | None, operator: OperatorHome) -> bytes:
    """The public half of the operator's key; empty if none is named and none lies in its folder.

    Raises:
        ConfigError: the file named is not there, or holds something else.
    """
    path = given or operator.roster_key
    if given is None and not path.exists():
        return b""
    return read_roster_key(path).public_key().public_bytes_raw()


def read_roster_key(path: Path) -> Ed25519PrivateKey:
    """The operator's key.

    Raises:
        ConfigError: there is none, or the file holds something else.
    """
    try:
        pem = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"there is no roster key {path}",
            hint="make one with 'foedus roster key', or name it with --file or FOEDUS_ROSTER_KEY",
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    return read_signing_key(pem, str(path))
