"""What a site was asked to do, as a digest: all sites of a secure sum must have been asked the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from .messages import Assignment

# What may change from one attempt at a round to the next, with no effect on what is trained.
_OF_AN_ATTEMPT = ("cohort_size", "deadline_seconds")


def training_sha256(assignment: Assignment) -> str:
    """SHA-256, in hex, of all that an update hangs on, its protection included: no other order is given it."""
    fields = {name: value for name, value in _fields(assignment).items() if name not in _OF_AN_ATTEMPT}
    return hashlib.sha256(_canonical(fields)).hexdigest()


def config_sha256(assignment: Assignment) -> bytes:
    """SHA-256 of the assignment's canonical JSON: keys sorted, no spaces, every field of it."""
    return hashlib.sha256(_canonical(_fields(assignment))).digest()


def _fields(assignment: Assignment) -> dict[str, Any]:
    return asdict(assignment) | {"training": assignment.training.model_dump(mode="json")}


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
