"""Files that are complete or absent, and private where they must be."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .errors import Corrupt, DiskFull, StoreError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def store_error(error: OSError, doing: str) -> StoreError:
    """The typed error for an operating-system error met while ``doing`` something."""
    if error.errno in FULL:
        return DiskFull(f"{doing}: no space left on the disk", hint="free some space; the run can then be resumed")
    return StoreError(f"{doing}: {error.strerror or error}")


@contextmanager
def storing(doing: str) -> Iterator[None]:
    """Turn an OSError into the StoreError that says what could not be stored."""
    try:
        yield
    except OSError as error:
        raise store_error(error, doing) from error


@contextmanager
def replacing(path: Path, *, mode: int = 0o644, durable: bool = True) -> Iterator[BinaryIO]:
    """Write a file that appears under ``path`` only when it is whole.

    With ``durable`` it is on the disk before it appears, and so is its name.

    Raises:
        StoreError: nothing is left under ``path`` but what was there before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with storing(f"writing {path}"):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        if durable:
            sync_folder(path.parent)


def write(path: Path, content: bytes | str, *, mode: int = 0o644, durable: bool = True) -> None:
    """Replace ``path`` by ``content``, whole or not at all."""
    with replacing(path, mode=mode, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_private(path: Path, content: bytes | str) -> None:
    """As ``write``, readable by the owner alone."""
    write(path, content, mode=0o600)


def private_folder(path: Path) -> Path:
    """Make a folder, if need be, that only its owner may enter."""
    with storing(f"creating {path}"):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def lock_folder(folder: Path, *, hint: str) -> int:
    """Keep a folder for this process until the descriptor returned is closed, or the process ends.

    Raises:
        StoreError: another process keeps it; ``hint`` is what to do then.
    """
    with storing(f"opening {folder / 'lock'}"):
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StoreError(f"another process works in {folder}", hint=hint) from None
    return descriptor


def sync_file(path: Path) -> None:
    """Force a file's content to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_file(path: Path) -> str:
    """The hex SHA-256 of a file's content."""
    return hashed(path)[1].hexdigest()


def hashed(path: Path) -> tuple[int, hashlib._Hash]:
    """The size of a file and the SHA-256 over it, to be continued with what is appended."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest


def read_exactly(path: Path, offset_bytes: int, into: memoryview) -> None:
    """Fill ``into`` (writable, contiguous bytes) with what the file holds from ``offset_bytes`` on.

    Positioned reads, never a memory map: a file cut short is an error here, not a killed process.

    Raises:
        Corrupt: the file ends too early.
        StoreError: the file is missing or cannot be read.
    """
    done = 0
    with storing(f"reading {path}"), path.open("rb", buffering=0) as file:
        while done < len(into):
            got = os.preadv(file.fileno(), [into[done:]], offset_bytes + done)
            if not got:
                size = os.fstat(file.fileno()).st_size
                raise Corrupt(f"{path} ends after {size} bytes, expected at least {offset_bytes + len(into)}")
            done += got
