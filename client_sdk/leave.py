"""Leaving a federation: what a home loses."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..files import storing
from .home import SiteHome


def to_remove(folder: Path) -> list[Path]:
    """What leaving deletes: keys, certificate, and everything received or made in runs."""
    home = SiteHome(folder)
    keys = (home.key, home.signing_key, home.certificate, home.authority, home.roster_key)
    candidates = (*keys, home.outbox, home.models, home.checkpoints, home.status)
    return [path for path in candidates if path.exists()]


def leave(folder: Path) -> None:
    """Delete it, the keys first.

    Raises:
        StoreError: something could not be deleted.
    """
    with storing(f"leaving {folder}"):
        for path in to_remove(folder):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
