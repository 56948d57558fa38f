import numpy as np
import pytest
from foedus.client_sdk.claims import checked_measurement, checked_result
from foedus.client_sdk.task import LocalResult, Measurement
from foedus.errors import InvalidUpdate, TaskFailed
from foedus.protos.wire import MAX_EXAMPLES, MAX_METRICS


def result(**changes):
    return LocalResult(**{"model": None, "num_examples": 10, "num_steps": 3, "metrics": {"loss": 0.5}, **changes})


BAD_METRICS = [
    ({"loss": float("nan")}, "'loss' is nan"),
    ({"loss": float("inf")}, "'loss' is inf"),
    ({"val/acc": 0.5}, "'val/acc', expected letters"),
    ({"\ud800": 0.5}, "expected letters"),
    ({1: 0.5}, "name is 1, expected text"),
    ({"loss": "low"}, "'loss' is low, expected a finite number"),
    ({"loss": None}, "'loss' is None"),
    ({"loss": 10**400}, "'loss' is 1000"),
    ({f"m{i}": 0.5 for i in range(MAX_METRICS + 1)}, "65 metrics"),
]


@pytest.mark.parametrize(("metrics", "reason"), BAD_METRICS)
def test_metrics_the_wire_refuses_are_refused_here(metrics, reason):
    with pytest.raises(InvalidUpdate, match=reason):
        checked_result(result(metrics=metrics))
    with pytest.raises(TaskFailed, match=reason):
        checked_measurement(Measurement(num_examples=1, metrics=metrics))


@pytest.mark.parametrize("number", [-1, MAX_EXAMPLES + 1, 2.0, float("nan"), "3", None, 10**400])
@pytest.mark.parametrize("field", ["num_examples", "num_steps"])
def test_counts_that_are_none(number, field):
    with pytest.raises(InvalidUpdate, match=field):
        checked_result(result(**{field: number}))
    if field == "num_examples":
        with pytest.raises(TaskFailed, match=field):
            checked_measurement(Measurement(num_examples=number, metrics={}))


@pytest.mark.parametrize("number", [0, 7, MAX_EXAMPLES])
def test_numbers_of_other_libraries_become_pythons(number):
    checked = checked_result(result(num_examples=np.int64(number), metrics={"loss": np.float32(0.5)}))
    assert (checked.num_examples, checked.metrics) == (number, {"loss": 0.5})
    assert (type(checked.num_examples), type(checked.metrics["loss"])) == (int, float)
    measured = checked_measurement(Measurement(num_examples=np.int64(number), metrics={"auc": np.float64(0.25)}))
    assert (type(measured.num_examples), measured.metrics) == (int, {"auc": 0.25})
