"""How long to wait before trying again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Exponential backoff with full jitter: uniform below a ceiling that doubles up to ``longest_seconds``.

    Jitter keeps the sites of a federation from returning all at once after the server's restart.
    """

    first_seconds: float = 0.5
    longest_seconds: float = 30.0
    random: random.Random = field(default_factory=random.Random)
    _ceiling: float = field(default=0.0)

    def next_seconds(self) -> float:
        """The next wait."""
        self._ceiling = min(self.longest_seconds, max(self.first_seconds, 2 * self._ceiling))
        return self.random.uniform(self.first_seconds / 2, self._ceiling)

    def reset(self) -> None:
        """It worked: begin small again."""
        self._ceiling = 0.0
