"""What answering queries has cost the people in this site's records, as it is kept on the disk."""

from __future__ import annotations

import json
from dataclasses import asdict

from ..privacy.events import DiscreteGaussianSum, Event, NoiselessRelease, SkellamSum

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in (NoiselessRelease, SkellamSum, DiscreteGaussianSum)}


def written(event: Event) -> str:
    """An event as JSON."""
    return json.dumps({"event": type(event).__name__, **asdict(event)})


def read(text: str) -> Event:
    """What ``written`` wrote."""
    fields = json.loads(text)
    return _KINDS[fields.pop("event")](**fields)
