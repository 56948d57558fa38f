"""A torch module as a federated model, and back.

Parameters that require gradients are trainable, the others frozen; floating buffers are
averaged, integer buffers (BatchNorm's ``num_batches_tracked``) are counters. Tied weights count
once, under their first name; buffers registered as non-persistent stay at the site.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..errors import ConfigError, InvalidUpdate
from ..layout import Layout, Role, TensorSpec
from ..modelfile import Model

HALF = frozenset({torch.float16, torch.bfloat16})


def layout_of_module(module: nn.Module) -> Layout:
    """The module's tensors, named as in its ``state_dict``.

    Raises:
        ConfigError: nothing is trainable, a dtype cannot travel, or a lazy parameter has no shape yet.
    """
    return Layout(
        tuple(
            TensorSpec(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), role)
            for name, tensor, role in _federated(module)
        )
    )


def load_model(module: nn.Module, model: Model) -> None:
    """Copy a model's values into the module, each in the module's own dtype; nothing is shared."""
    arrays = model.arrays()
    with torch.no_grad():
        for name, tensor, role in _federated(module):
            if role is not Role.FROZEN:
                tensor.copy_(torch.from_numpy(np.array(arrays[name])))
            elif tensor.numel():
                raw = torch.frombuffer(bytearray(model.frozen[name]), dtype=tensor.dtype)
                tensor.copy_(raw.reshape(tensor.shape))


def model_of_module(module: nn.Module, layout: Layout, received: Model | None = None) -> Model:
    """The module's values as a model, copied.

    float16 and bfloat16 parameters are trained in their own dtype from the rounded float32
    values of ``received``. What comes back is received + (trained - rounded received), so that the
    rounding itself is no update: an untrained model comes back bit for bit.

    Raises:
        InvalidUpdate: a trainable value or a buffer is not finite.
    """
    before = received.arrays() if received is not None else {}
    arrays: dict[str, npt.NDArray[Any]] = {}
    frozen: dict[str, bytes] = {}
    for name, tensor, role in _federated(module):
        value = tensor.detach().cpu()
        if role is Role.FROZEN:
            frozen[name] = received.frozen[name] if received is not None else _raw(value)
        elif role is Role.COUNTER:
            arrays[name] = value.to(torch.int64).numpy()
        else:
            arrays[name] = value.float().numpy()
            if role is Role.TRAINABLE and value.dtype in HALF and name in before:
                rounded = torch.from_numpy(np.array(before[name])).to(value.dtype).float().numpy()
                arrays[name] = before[name] + (arrays[name] - rounded)
            if not np.isfinite(arrays[name]).all():
                raise InvalidUpdate(
                    f"tensor {name!r} holds values that are not finite",
                    hint="lower the learning rate, or look for broken examples in the data",
                )
    return Model.of(layout, arrays, frozen)


def _federated(module: nn.Module) -> Iterator[tuple[str, Tensor, Role]]:
    for name, parameter in module.named_parameters():
        if is_lazy(parameter):
            raise ConfigError(
                f"parameter {name!r} is lazy and has no shape yet",
                hint="run one batch through the model when building it",
            )
        yield name, parameter, Role.TRAINABLE if parameter.requires_grad else Role.FROZEN
    persistent = module.state_dict().keys()
    for name, buffer in module.named_buffers():
        if name in persistent:
            yield name, buffer, Role.BUFFER if buffer.is_floating_point() else Role.COUNTER


def _raw(value: Tensor) -> bytes:
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
