"""What a site was asked to do, as a digest: all sites of a secure sum must have been asked the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from .messages import Assignment


def config_sha256(assignment: Assignment) -> bytes:
    """SHA-256 of the assignment's canonical JSON: keys sorted, no spaces, every field of it."""
    fields = asdict(assignment) | {"training": assignment.training.model_dump(mode="json")}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).digest()
