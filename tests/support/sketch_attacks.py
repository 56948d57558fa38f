"""What tests of attackers on sketches have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from by_definition import geometry
from foedus.errors import SecureSumFailed
from foedus.privacy.secagg import sketching
from foedus.privacy.secagg.collect import Phase
from foedus.privacy.secagg.dealing import Dealing, dealt
from foedus.privacy.secagg.sketch_terms import shift_of
from foedus.privacy.secagg.sketching import sketch_of
from foedus.privacy.sharing.field import Elements, Integers, Stream
from foedus.privacy.sharing.sketches import coarse, unit_of
from secure_sums import Federation
from sketched_sums import SketchServer, sketch_server, sketched


def fails(act: Callable[[], Any], code: str) -> tuple[bytes, ...]:
    with pytest.raises(SecureSumFailed) as caught:
        act()
    assert caught.value.reason == code
    return caught.value.blamed


def estimates(run: SketchServer) -> np.ndarray:
    """The squared distances between the sketches of what the sites judged have masked."""
    judged, described = run.collection.judged, run.described
    assert judged is not None
    sketches_NS = np.array(
        [
            coarse(sketch_of(described, run.collection.view, run.plain[site]), shift_of(described))
            for site in judged.sites
        ]
    )
    return np.asarray(geometry(sketches_NS).squared_PP * unit_of(shift_of(described)))


def require_estimates(run: SketchServer) -> None:
    assert run.collection.judged is not None
    np.testing.assert_allclose(run.collection.judged.squared_PP, estimates(run), rtol=1e-12)


def dealing_badly(
    monkeypatch: pytest.MonkeyPatch, liars: Iterable[bytes], tamper: Callable[[Dealing, Elements], None]
) -> None:
    who = set(liars)

    def deals(dealing: Dealing, dealer: bytes, vector_L: Integers, draw: Stream) -> Elements:
        rows = dealt(dealing, dealer, vector_L, draw)
        if dealer in who:
            tamper(dealing, rows)
        return rows

    monkeypatch.setattr(sketching, "dealt", deals)


def masking_and_not(run: SketchServer) -> tuple[bytes, bytes]:
    """A mask dealer, and a dealer of a sketch only."""
    masking = run.collection.dealing.mask_dealers
    return masking[0], next(site for site in run.collection.survivors if site not in masking)


def ready(made: Federation, **changes: Any) -> SketchServer:
    """A session whose survivors are settled, so that it is known who deals masks."""
    run = sketch_server(made, sketched(made, **changes))
    run.to(Phase.MASKED)
    run.send()
    return run
