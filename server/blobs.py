"""Model files by their digest, and the updates that a round has received."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import Corrupt, NotFound
from ..files import hashed, sha256_file, storing, sync_folder


@dataclass(frozen=True, slots=True)
class Blobs:
    """Files under ``folder``, each named by the hex SHA-256 of its content; whole or absent."""

    folder: Path

    def path(self, sha256: str) -> Path:
        """Where the blob is.

        Raises:
            NotFound: there is no such blob.
        """
        path = self.folder / sha256
        if not path.is_file():
            raise NotFound(f"there is no model {sha256[:12]}…")
        return path

    def require_intact(self, sha256: str) -> None:
        """Read a blob once and make sure that it is what its name says.

        Raises:
            Corrupt: it is not, or it is gone.
        """
        path = self.folder / sha256
        seen = sha256_file(path) if path.is_file() else "missing"
        if seen != sha256:
            raise Corrupt(
                f"the stored model {path} is damaged: its digest is {seen[:12]}",
                hint="restore the file from a backup and resume the run",
            )

    def scratch(self, name: str) -> Path:
        """A path for a file in the making; ``adopt`` makes it a blob, a restart removes it."""
        return self.folder / f"{name}.part"

    def adopt(self, scratch: Path, sha256: str) -> Path:
        """Give a finished, synced scratch file its final name."""
        path = self.folder / sha256
        with storing(f"storing model {sha256[:12]}…"):
            os.replace(scratch, path)
            sync_folder(self.folder)
        return path

    def keep_only(self, wanted: Set[str]) -> None:
        """Remove every finished blob whose digest is not wanted."""
        for path in self.folder.iterdir():
            if path.name not in wanted and "." not in path.name:
                path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what a killed process left half-written. Only at start-up, before any work."""
        for path in self.folder.iterdir():
            if "." in path.name:
                path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Inbox:
    """The updates received: ``folder/run/round/site``, and ``site~….part`` while they arrive.

    No site's name holds a "~", so one site's parts are never taken for another's.
    """

    folder: Path

    def update(self, run: str, round: int, site: str) -> Path:
        """Where a site's complete update of a round is, or will be."""
        return self.folder / run / str(round) / site

    def partial(self, run: str, round: int, site: str, sha256: str) -> Path:
        """Where an update is gathered; another digest is another file, so parts never mix."""
        return self.folder / run / str(round) / f"{site}~{sha256[:16]}.part"

    def open_partial(self, run: str, round: int, site: str, sha256: str) -> tuple[int, hashlib._Hash]:
        """Make room for a partial update; its size so far and the hash over it."""
        path = self.partial(run, round, site, sha256)
        with storing(f"receiving the update of {site}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            for other in path.parent.glob(f"{site}~*.part"):
                if other != path:
                    other.unlink(missing_ok=True)
            path.touch()
            return hashed(path)

    def forget_round(self, run: str, round: int) -> None:
        """Remove all updates of a round."""
        shutil.rmtree(self.folder / run / str(round), ignore_errors=True)

    def forget_run(self, run: str) -> None:
        """Remove all updates of a run."""
        shutil.rmtree(self.folder / run, ignore_errors=True)

    def rounds(self) -> Iterator[tuple[str, int]]:
        """The (run, round) pairs for which anything is kept."""
        for run in self.folder.iterdir():
            for round in run.iterdir():
                with suppress(ValueError):
                    yield run.name, int(round.name)
