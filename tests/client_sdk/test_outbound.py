import numpy as np
import pytest
from foedus.client_sdk import outbound
from foedus.client_sdk.outbound import update_blocks
from foedus.errors import InvalidUpdate, LayoutMismatch
from foedus.layout import Layout, Role, TensorSpec
from foedus.modelfile import Model
from hypothesis import given
from hypothesis import strategies as st

LAYOUT = Layout(
    (
        TensorSpec("w", (2, 2), "float32", Role.TRAINABLE),
        TensorSpec("b", (3,), "float64", Role.TRAINABLE),
        TensorSpec("mean", (2,), "float32", Role.BUFFER),
        TensorSpec("seen", (), "int64", Role.COUNTER),
        TensorSpec("embedding", (4,), "float16", Role.FROZEN),
    )
)


def model(w=(0, 0, 0, 0), b=(0, 0, 0), mean=(0, 0), seen=0, layout=LAYOUT):
    arrays = {
        "w": np.reshape(np.array(w, np.float32), (2, 2)),
        "b": np.array(b, np.float64),
        "mean": np.array(mean, np.float32),
        "seen": np.array(seen, np.int64),
        "embedding": np.zeros(4, np.float16),
    }
    return Model.of(layout, arrays)


def test_known_bytes():
    received = model((1, 2, 3, 4), (5, 6, 7), (8, 9), 10)
    trained = model((2, 2, 1, 4.5), (5, 6, 8), (0.5, -1), 300)
    data = b"".join(update_blocks(received, trained))
    assert data == (
        b"\0\0\x80\x3f" b"\0\0\0\0" b"\0\0\0\xc0" b"\0\0\0\x3f"  # w: 1, 0, -2, 0.5
        b"\0\0\0\0" b"\0\0\0\0" b"\0\0\x80\x3f"  # b: 0, 0, 1
        b"\0\0\0\x3f" b"\0\0\x80\xbf"  # mean as it is: 0.5, -1
        b"\x2c\x01\0\0\0\0\0\0"  # seen as it is: 300
    )  # fmt: skip
    assert len(data) == LAYOUT.update_bytes


finite = st.floats(-1e6, 1e6, width=32)


@given(st.lists(finite, min_size=18, max_size=18), st.integers(0, 2**62), st.integers(1, 5))
def test_the_bytes_are_the_differences_whatever_the_blocks(values, seen, block):
    received = model(values[:4], values[4:7], values[7:9], 1)
    trained = model(values[9:13], values[13:16], values[16:18], seen)
    before = outbound.BLOCK_VALUES
    outbound.BLOCK_VALUES = block
    try:
        data = b"".join(update_blocks(received, trained))
    finally:
        outbound.BLOCK_VALUES = before
    got = np.frombuffer(data[:28], "<f4")
    for index in range(7):
        assert got[index] == np.float32(values[9 + index]) - np.float32(values[index])
    assert list(np.frombuffer(data[28:36], "<f4")) == values[16:18]
    assert int.from_bytes(data[36:], "little") == seen


@pytest.mark.parametrize(
    ("change", "tensor", "value"),
    [
        ({"w": (0, 0, 0, np.nan)}, "w", "nan"),
        ({"b": (0, np.inf, 0)}, "b", "inf"),
        ({"b": (-np.inf, 0, 0)}, "b", "-inf"),
        ({"mean": (0, np.nan)}, "mean", "nan"),
    ],
)
def test_what_is_not_finite_is_named(change, tensor, value):
    with pytest.raises(InvalidUpdate, match=f"'{tensor}' {value},") as caught:
        b"".join(update_blocks(model(), model(**change)))
    assert caught.value.hint


def test_a_difference_that_overflows_is_refused():
    with pytest.raises(InvalidUpdate, match="'w' inf"):
        b"".join(update_blocks(model((-3e38, 0, 0, 0)), model((3e38, 0, 0, 0))))


def test_another_layout_is_refused():
    other = Layout((*LAYOUT.tensors[:1], TensorSpec("b", (3,), "float32", Role.TRAINABLE), *LAYOUT.tensors[2:]))
    with pytest.raises(LayoutMismatch, match="'b'"):
        b"".join(update_blocks(model(), model(layout=other)))


def test_the_received_model_is_left_alone():
    received, trained = model((1, 2, 3, 4)), model((4, 3, 2, 1))
    b"".join(update_blocks(received, trained))
    assert list(received.trainable_D[:4]) == [1, 2, 3, 4]
    assert list(trained.trainable_D[:4]) == [4, 3, 2, 1]
