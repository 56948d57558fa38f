"""A torch module as a federated model, and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from foedus.client_sdk.torch_module import layout_of_module, load_model, model_of_module
from foedus.errors import ConfigError, InvalidUpdate
from foedus.layout import Role, names
from foedus.modelfile import Model, ModelFile, write_model
from torch import nn


class Everything(nn.Module):
    """Every kind of tensor that a module can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.base = nn.Parameter(torch.randn(2, 3, dtype=torch.bfloat16), requires_grad=False)
        self.small = nn.Parameter(torch.randn(5, dtype=torch.bfloat16))
        self.scalar = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("cache", torch.ones(7), persistent=False)


def test_roles_follow_the_kind_of_tensor() -> None:
    layout = layout_of_module(Everything())
    assert names(layout.of(Role.TRAINABLE)) == (
        "small",
        "scalar",
        "body.0.weight",
        "body.0.bias",
        "body.1.weight",
        "body.1.bias",
    )
    assert names(layout.of(Role.BUFFER)) == ("body.1.running_mean", "body.1.running_var")
    assert names(layout.of(Role.COUNTER)) == ("mask", "body.1.num_batches_tracked")
    assert names(layout.of(Role.FROZEN)) == ("base",)
    assert {tensor.name for tensor in layout.tensors} == set(Everything().state_dict())
    assert {t.name: t.dtype for t in layout.tensors}["small"] == "bfloat16"


def test_a_module_comes_back_bit_for_bit_through_a_model_file(tmp_path) -> None:
    torch.manual_seed(3)
    source, target = Everything(), Everything()
    source.body(torch.randn(6, 3))  # moves running statistics and the counter
    layout = layout_of_module(source)
    write_model(tmp_path / "m.safetensors", model_of_module(source, layout))
    load_model(target, ModelFile.open(tmp_path / "m.safetensors").read())
    for name, value in source.state_dict().items():
        assert target.state_dict()[name].dtype == value.dtype
        assert torch.equal(target.state_dict()[name], value), name


def test_a_loaded_module_shares_no_memory_with_the_model() -> None:
    module = nn.Linear(2, 2)
    model = model_of_module(module, layout_of_module(module))
    before = model.trainable_D.copy()
    load_model(module, model)
    with torch.no_grad():
        module.weight.add_(1)
    np.testing.assert_array_equal(model.trainable_D, before)


def test_tied_weights_count_once_and_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.out = nn.Linear(3, 5, bias=False)
            self.out.weight = self.embed.weight

    module, other = Tied(), Tied()
    layout = layout_of_module(module)
    assert names(layout.tensors) == ("embed.weight",)
    load_model(other, model_of_module(module, layout))
    assert other.out.weight is other.embed.weight
    assert torch.equal(other.out.weight, module.embed.weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_to_half_precision_is_no_update(dtype: torch.dtype) -> None:
    module = nn.Linear(40, 3).to(dtype)
    layout = layout_of_module(module)
    exact = model_of_module(module, layout)
    between = Model(layout, exact.trainable_D * np.float32(1.0003), exact.buffers_B, exact.counters_C, {})
    load_model(module, between)
    untrained = model_of_module(module, layout, between)
    np.testing.assert_array_equal(untrained.trainable_D, between.trainable_D)
    with torch.no_grad():
        module.bias += 1
    moved = model_of_module(module, layout, between).trainable_D - between.trainable_D
    np.testing.assert_array_equal(moved[: 40 * 3], 0)
    np.testing.assert_allclose(moved[40 * 3 :], 1, atol=2e-2)


def test_what_cannot_travel_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'weight' is lazy"):
        layout_of_module(nn.LazyLinear(3))
    with pytest.raises(ConfigError, match="no trainable"):
        layout_of_module(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(ConfigError, match="complex64"):
        layout_of_module(nn.Linear(2, 2, dtype=torch.complex64))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_refused(bad: float) -> None:
    module = nn.BatchNorm1d(2)
    layout = layout_of_module(module)
    module.running_var[0] = bad
    with pytest.raises(InvalidUpdate, match="running_var"):
        model_of_module(module, layout)
