"""Model files and layouts: what is written is read, and no bytes raise anything but our own errors."""

from __future__ import annotations

import json
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from foedus.errors import ConfigError, FoedusError, LayoutMismatch
from foedus.layout import FLOAT_DTYPES, INTEGER_DTYPES, RESERVED_NAME, Layout, Role, TensorSpec
from foedus.modelfile import LAYOUT_KEY, MAX_HEADER_BYTES, Model, ModelFile, header, model_bytes, write_model
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

names = st.text(st.characters(categories=("L", "N"), include_characters="._-/ "), min_size=1, max_size=12).filter(
    # Hypothesis also draws constants of the code under test, this one among them; it is refused elsewhere.
    lambda name: name.isprintable() and name != RESERVED_NAME
)
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
numpy_floats = st.sampled_from(sorted(FLOAT_DTYPES - {"bfloat16"}))


def spec(role):
    dtypes = {
        Role.TRAINABLE: numpy_floats,
        Role.BUFFER: numpy_floats,
        Role.COUNTER: st.sampled_from(sorted(INTEGER_DTYPES)),
        Role.FROZEN: st.one_of(numpy_floats, st.sampled_from(sorted(INTEGER_DTYPES))),
    }
    return st.tuples(shapes, dtypes[role], st.just(role))


@st.composite
def layouts(draw):
    found = draw(st.dictionaries(names, st.sampled_from(list(Role)).flatmap(spec), max_size=5))
    tensors = [TensorSpec(name, *rest) for name, rest in found.items()]
    return Layout((*tensors, TensorSpec("always trained", (draw(st.integers(1, 5)),), "float32", Role.TRAINABLE)))


@st.composite
def models(draw):
    layout = draw(layouts())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    frozen = {
        t.name: (rng.random(t.shape) < 0.5 if t.dtype == "bool" else rng.integers(0, 99, t.shape).astype(t.dtype))
        for t in layout.of(Role.FROZEN)
    }
    return Model(
        layout,
        rng.standard_normal(layout.num_trainable).astype(np.float32),
        rng.standard_normal(layout.num_buffers).astype(np.float32),
        rng.integers(-(2**62), 2**62, layout.num_counters),
        {name: np.asarray(array).tobytes() for name, array in frozen.items()},
    )


@given(models())
def test_what_is_written_is_read_and_any_safetensors_reader_agrees(model):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        write_model(path, model)
        assert path.stat().st_size == model_bytes(model.layout)
        opened = ModelFile.open(path)
        assert opened.layout == model.layout
        assert opened.layout.digest == model.layout.digest
        read = opened.read()
        for ours, theirs in (
            (model.trainable_D, read.trainable_D),
            (model.buffers_B, read.buffers_B),
            (model.counters_C, read.counters_C),
        ):
            assert ours.tobytes() == theirs.tobytes()
        assert read.frozen == model.frozen
        official = load_file(path)
        assert official.keys() == {tensor.name for tensor in model.layout.tensors}
        for name, values in model.arrays().items():
            np.testing.assert_array_equal(official[name], values)
        for name, raw in model.frozen.items():
            assert official[name].tobytes() == raw


@given(layouts())
def test_a_layout_survives_its_own_text(layout):
    assert Layout.from_json(layout.to_json()) == layout
    flat = np.arange(layout.num_trainable, dtype=np.float32)
    np.testing.assert_array_equal(layout.flatten(layout.unflatten(flat, Role.TRAINABLE), Role.TRAINABLE), flat)
    with pytest.raises(LayoutMismatch):
        layout.unflatten(flat[1:], Role.TRAINABLE)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["F32", "float32"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
rows = st.lists(
    st.tuples(json_values | names, json_values | shapes, json_values, json_values | st.sampled_from(list(Role))),
    max_size=4,
)


@given(st.one_of(st.text(), json_values.map(json.dumps), rows.map(json.dumps)))
@example('[["w",[1e999],"float32","trainable"]]')
@example('[["w",[-1],"float32","trainable"]]')
@example('[["w",[4611686018427387904,4611686018427387904],"float32","trainable"]]')
@example('[["__metadata__",[1],"float32","trainable"]]')
@example('[["w",[1],"float32","trainable"],["w",[1],"float32","trainable"]]')
@example("[" * 100_000)
@example("9" * 5000)
def test_any_text_is_a_layout_or_a_config_error(text):
    with suppress(ConfigError):
        assert Layout.from_json(text).num_trainable


def opened(content: bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        path.write_bytes(content)
        found = ModelFile.open(path)
        found.require_finite()
        return found.layout


def with_header(table: object, data: bytes = b"") -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + data


entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "I64", "F16", "BF16", "nonsense"]) | json_values,
        "shape": st.lists(st.integers(-2, 5), max_size=3) | json_values,
        "data_offsets": st.lists(st.integers(-2, 99), max_size=3) | json_values,
    },
)
tables = st.dictionaries(st.just("__metadata__") | st.text(max_size=6), entries | json_values, max_size=4)


@given(
    st.one_of(st.binary(max_size=200), st.binary(max_size=80).map(with_header), tables.map(with_header)), st.binary()
)
@example(with_header({"w": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}), b"")
@example(with_header({"__metadata__": {LAYOUT_KEY: '[["w",[1e999],"float32","trainable"]]'}}), b"")
@example(with_header(b"[" * 100_000), b"")
@example(with_header({"__metadata__": 3, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}), b"1234")
def test_any_bytes_are_a_model_or_one_of_our_errors(content, data):
    with suppress(FoedusError):
        assert opened(content + data).num_trainable


@given(models(), st.data())
def test_a_model_with_one_byte_changed_is_a_model_or_refused(model, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        write_model(path, model)
        content = bytearray(path.read_bytes())
        where = data.draw(st.integers(0, len(header(model.layout)) - 1))
        content[where] ^= data.draw(st.integers(1, 255))
        try:
            layout = opened(bytes(content))
        except FoedusError:
            return
        assert model_bytes(layout) == len(content)


@pytest.mark.parametrize("length", [0, 1, MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1])
def test_a_huge_header_is_refused_before_it_is_read(length):
    with pytest.raises(ConfigError, match="not a safetensors file"):
        opened(struct.pack("<Q", length) + b"{}")


@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_of_another_size_than_it_declares_is_refused(tmp_path, change):
    layout = Layout((TensorSpec("w", (1 << 30,), "float32", Role.TRAINABLE),))
    with pytest.raises(ConfigError, match="truncated or has trailing bytes"):
        opened(header(layout) + b"1234")
    small = Layout((TensorSpec("w", (4,), "float32", Role.TRAINABLE),))
    with pytest.raises(ConfigError, match="truncated or has trailing bytes"):
        opened(header(small) + bytes(16 + change))


def test_files_of_other_writers(tmp_path):
    path = tmp_path / "model"
    save_file({"w": np.ones((2, 3), np.float32), "v": np.ones(4, np.float32)}, path)
    layout = ModelFile.open(path).layout
    assert {tensor.name: (tensor.role, tensor.shape) for tensor in layout.tensors} == {
        "w": ("trainable", (2, 3)),
        "v": ("trainable", (4,)),
    }
    save_file({"w": np.ones((2, 3), np.float32), "n": np.array([5], np.int64)}, path)  # it puts integers first
    with pytest.raises(ConfigError, match="in another order"):
        ModelFile.open(path)
    save_file({"w": np.ones(2, np.float16)}, path)
    with pytest.raises(ConfigError, match="F16") as caught:
        ModelFile.open(path)
    assert "foedus task init" in caught.value.hint


def test_what_is_not_finite_is_named(tmp_path):
    layout = Layout((TensorSpec("a", (2,), "float32", Role.TRAINABLE), TensorSpec("b", (2,), "float32", Role.BUFFER)))
    for bad, vectors in (("a", ([1, np.nan], [0, 0])), ("b", ([1, 2], [0, -np.inf]))):
        trainable, buffers = (np.array(vector, np.float32) for vector in vectors)
        found = write_model(tmp_path / "model", Model(layout, trainable, buffers, np.zeros(0, np.int64), {}))
        with pytest.raises(ConfigError, match=f"not finite in tensor '{bad}'"):
            found.require_finite()


def test_no_file_and_no_folder_is_a_model(tmp_path):
    with pytest.raises(ConfigError, match="there is no model file"):
        ModelFile.open(tmp_path / "missing")
    with pytest.raises(ConfigError, match="cannot be read"):
        ModelFile.open(tmp_path)


def test_the_name_that_safetensors_keeps_for_itself_is_refused():
    with pytest.raises(ConfigError, match="__metadata__"):
        Layout((TensorSpec(RESERVED_NAME, (1,), "float32", Role.TRAINABLE),))
