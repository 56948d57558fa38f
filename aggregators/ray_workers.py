"""Blocks over a Ray cluster, for updates that one machine takes too long over.

The bits are those of one machine: a block does not know where it is computed. Rows in files are
read where the block is computed, so that the folder must be on a file system that all machines share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import ConfigError, StoreError
from .workers import Span

T = TypeVar("T")

TASKS_PER_CPU = 2


@dataclass(frozen=True, slots=True)
class RayWorkers:
    """``Workers`` of the Ray cluster that ``address`` names.

    Attributes:
        address: as for ``ray.init``: "auto" or a host and port; None for the one that RAY_ADDRESS
            names, or one started on this machine.

    Raises:
        ConfigError: Ray is not installed.
    """

    address: str | None = None

    def __post_init__(self) -> None:
        _ray()

    def map(self, function: Callable[[Span], T], spans: Sequence[Span]) -> Iterator[T]:
        """As ``Workers.map``; what the function holds is sent to each machine once.

        Raises:
            StoreError: the cluster cannot be reached, or lost a block.
        """
        ray, in_flight = _ray(), deque[Any]()
        try:
            if not ray.is_initialized():
                ray.init(self.address, log_to_driver=False, configure_logging=False)
            sent, compute = ray.put(function), ray.remote(_compute)
            at_once = TASKS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
            for span in spans:
                in_flight.append(compute.remote(sent, span))
                if len(in_flight) > at_once:
                    yield ray.get(in_flight.popleft())
            while in_flight:
                yield ray.get(in_flight.popleft())
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # what the function itself raised
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise StoreError(
                f"the Ray cluster failed: {error}", hint="see 'ray status', then resume the run"
            ) from error


def _compute(function: Callable[[Span], T], span: Span) -> T:
    return function(span)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError("engine 'ray' needs Ray, which is not installed", hint="pip install 'foedus[ray]'") from None
    return ray
