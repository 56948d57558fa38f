"""A new server's home: the federation's authority, the settings, the first operator."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..clock import Clock
from ..configuration import load, validate
from ..errors import ConfigError
from ..files import private_folder, storing, write, write_private
from ..privacy.certificates import (
    certificate_key_sha256,
    expires,
    issue,
    new_authority,
    new_key_pem,
    new_request,
)
from ..privacy.identity import Identity
from ..protos.address import split_address
from .config import DAY_SECONDS, ServerConfig, ServerHome
from .credentials import OperatorHome
from .registry import Registry
from .store import Store

AUTHORITY_SECONDS = 20 * 365 * DAY_SECONDS
OPERATOR = "operator"


def initialise(folder: Path, *, federation: str, address: str, listen: str | None, clock: Clock) -> ServerHome:
    """Make a server's home.

    Raises:
        ConfigError: the folder already holds one, or a name or address cannot be used.
        StoreError: it cannot be written.
    """
    home = ServerHome(folder)
    if home.config.exists():
        raise ConfigError(f"{folder} already is a server's home", hint="start it with 'foedus server up'")
    _, port = split_address(address)
    listen = listen or f"0.0.0.0:{port}"
    split_address(listen)
    config = validate(
        ServerConfig, {"federation": federation, "address": address, "listen": listen}, "foedus server init"
    )
    with storing(f"creating {folder}"):
        for part in (home.folder, home.database.parent, home.blobs, home.inbox):
            private_folder(part)
    now = clock.now()
    key, certificate = new_authority(federation, now, AUTHORITY_SECONDS)
    write_private(home.authority_key, key)
    write(home.authority, certificate)
    _first_operator(home, config, key, certificate, clock)
    # Last: a home without settings is no home yet, and init can be run again.
    write(home.config, _settings(config))
    return home


def reissue_operator(folder: Path, clock: Clock) -> OperatorHome:
    """New credentials for the first operator, for when the old ones have expired or leaked.

    Raises:
        ConfigError: the folder is no server's home.
        StoreError: the server is up.
    """
    home = ServerHome(folder)
    config = load(ServerConfig, home.config)
    guard = home.lock()
    try:
        _first_operator(home, config, home.authority_key.read_bytes(), home.authority.read_bytes(), clock)
    finally:
        os.close(guard)
    return OperatorHome(home.operator)


def _first_operator(
    home: ServerHome, config: ServerConfig, authority_key: bytes, authority: bytes, clock: Clock
) -> None:
    key = new_key_pem()
    identity = Identity(config.federation, "operator", OPERATOR)
    certificate = issue(
        authority_key, authority, new_request(key, OPERATOR), identity, clock.now(), config.certificate_seconds
    )
    OperatorHome(home.operator).write(
        address=config.address, authority_pem=authority, key_pem=key, certificate_pem=certificate
    )
    store = Store(home.database)
    try:
        Registry(store, clock).add(
            OPERATOR, "operator", key_sha256=certificate_key_sha256(certificate), expires=expires(certificate)
        )
    finally:
        store.close()


def _settings(config: ServerConfig) -> str:
    lines = ["# The settings of this federation's server; 'foedus server up' reads them.\n"]
    for key in ("federation", "listen", "address"):
        lines.append(f"{key} = {json.dumps(getattr(config, key))}\n")
    lines.append(
        f"# web = {json.dumps(config.web)}          # /livez, /readyz and /metrics, in the clear: keep it local\n"
    )
    lines.append("# hostnames = []                 # further names or addresses for the server's certificate\n")
    lines.append(f"# certificate_seconds = {config.certificate_seconds:.0f}   # renewed after two thirds of it\n")
    return "".join(lines)
