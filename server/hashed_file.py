"""A file that is hashed while it is written, and appears whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ..files import replacing


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is complete, and the hex SHA-256 of its content."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class HashedFile:
    """The file while it is written."""

    path: Path
    file: BinaryIO
    hash: Any = field(default_factory=hashlib.sha256)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self.hash.update(data)
        self.file.write(data)

    @property
    def written(self) -> WrittenFile:
        """What it is once it is complete."""
        return WrittenFile(self.path, self.hash.hexdigest())


@contextmanager
def hashed_file(path: Path) -> Iterator[HashedFile]:
    """Write a file durably; it takes the path's place when the block ends without an error."""
    with replacing(path) as file:
        yield HashedFile(path, file)
