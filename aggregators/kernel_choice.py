"""Which inner loops run here."""

from __future__ import annotations

import logging
from functools import cache

from ..logs import log_event
from .kernel import Kernel
from .kernel_compiled import CompiledKernel
from .kernel_numpy import NumpyKernel

log = logging.getLogger(__name__)


@cache
def best_kernel() -> Kernel:
    """The compiled kernel if it was built and can be loaded, numpy's otherwise; both give the same bits."""
    try:
        return CompiledKernel.load()
    except ModuleNotFoundError:
        return NumpyKernel()
    except ImportError as error:
        log_event(log, "compiled_kernel_refused", logging.WARNING, reason=str(error), hint="install foedus again")
        return NumpyKernel()
