"""Who is who in a federation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from ..errors import ConfigError

Role = Literal["server", "site", "operator", "anonymous"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who holds a certificate.

    Raises:
        ConfigError: a part has characters outside ``[a-z0-9._-]``, or the role is unknown.
    """

    federation: str
    role: Role
    name: str

    def __post_init__(self) -> None:
        for what, value in (("federation", self.federation), ("name", self.name)):
            if not _NAME.fullmatch(value):
                raise ConfigError(
                    f"the {what} {value!r:.80} cannot be used in a certificate",
                    hint="use at most 63 lower-case letters, digits, '.', '_' and '-', a letter or digit first",
                )
        if self.role not in get_args(Role):
            raise ConfigError(f"the role {self.role!r:.80} is not one of {', '.join(get_args(Role))}")

    @property
    def uri(self) -> str:
        """``spiffe://FEDERATION/ROLE/NAME``."""
        return f"spiffe://{self.federation}/{self.role}/{self.name}"

    @staticmethod
    def parse(uri: str) -> Identity:
        """Read what ``uri`` wrote.

        Raises:
            ConfigError: it is not such a URI.
        """
        parts = uri.removeprefix("spiffe://").split("/")
        if not uri.startswith("spiffe://") or len(parts) != 3:
            raise ConfigError(f"{uri!r:.120} is not an identity; expected spiffe://FEDERATION/ROLE/NAME")
        return Identity(parts[0], cast("Role", parts[1]), parts[2])
