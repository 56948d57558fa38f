"""Where a server is: ``host:port``."""

from __future__ import annotations

import re

from ..errors import ConfigError

MAX_ADDRESS_LENGTH = 320
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\]")


def split_address(address: str) -> tuple[str, int]:
    """The host (an IPv6 address without its brackets) and the port.

    Raises:
        ConfigError: it is not ``HOST:PORT`` or ``[IPV6]:PORT``.
    """
    host, _, port = address.rpartition(":")
    usable = len(address) <= MAX_ADDRESS_LENGTH and _HOST.fullmatch(host) and re.fullmatch(r"[0-9]{1,5}", port)
    if not usable or not 0 < int(port) < 65536:
        raise ConfigError(
            f"{address!r:.80} is not the address of a server",
            hint="write HOST:PORT, such as federation.example.org:8443",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
