from dataclasses import replace
from datetime import time

import pytest
from foedus.client_sdk.policy import Policy, WorkRequest, check, policy_toml, within
from foedus.configuration import load
from foedus.errors import ConfigError, PolicyRefused, error_classes
from hypothesis import given
from hypothesis import strategies as st

CODE = "ab" * 32
REQUEST = WorkRequest(task="heart", code_sha256=CODE, cohort_size=5, rounds_done=3, rounds=10, local_time=time(12, 30))


def policy(**changes):
    return Policy.model_validate({"tasks": {"heart": {"code_sha256": CODE}}, **changes})


def test_nothing_is_allowed_unless_named():
    refusal = check(Policy(), REQUEST)
    assert refusal.code == "SiteVeto"
    assert "heart" in refusal.reason


def test_a_named_task_with_the_same_code_is_allowed():
    assert check(policy(), REQUEST) is None


@pytest.mark.parametrize(
    ("limits", "request_", "code"),
    [
        ({}, replace(REQUEST, code_sha256="cd" * 32), "SiteVeto"),
        ({}, replace(REQUEST, task="lung"), "SiteVeto"),
        ({"hours": "20:00-06:00"}, REQUEST, "SiteVeto"),
        ({"smallest_cohort": 6}, REQUEST, "SiteVeto"),
        ({"max_rounds": 3}, REQUEST, "BudgetExhausted"),
        ({"max_rounds": 2}, REQUEST, "BudgetExhausted"),
    ],
)
def test_each_limit_refuses_with_a_reason(limits, request_, code):
    refusal = check(policy(**limits), request_)
    assert refusal.code == code
    assert issubclass(error_classes()[refusal.code], PolicyRefused)
    assert 20 < len(refusal.reason) < 200


@pytest.mark.parametrize("limits", [{"hours": "12:30-12:31"}, {"smallest_cohort": 5}, {"max_rounds": 4}])
def test_each_limit_is_met_exactly(limits):
    assert check(policy(**limits), REQUEST) is None


def test_an_evaluation_spends_no_round():
    assert check(policy(max_rounds=3), replace(REQUEST, trains=False)) is None
    assert check(policy(smallest_cohort=6), replace(REQUEST, trains=False)).code == "SiteVeto"


def test_any_code_is_allowed_only_when_said():
    anything = Policy.model_validate({"tasks": {"heart": {"code_sha256": "any"}}})
    assert check(anything, replace(REQUEST, code_sha256="cd" * 32)) is None


minutes = st.integers(0, 1439)


@given(minutes, minutes, minutes)
def test_hours_agree_with_walking_round_the_clock(start, end, now):
    if start == end:
        return
    moment = start
    inside = set()
    while moment != end:
        inside.add(moment)
        moment = (moment + 1) % 1440
    hours = f"{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}"
    assert policy(hours=hours).hours == hours
    assert within(hours, time(now // 60, now % 60, 59)) == (now in inside)


def test_hours_until_midnight():
    assert within("20:00-24:00", time(23, 59))
    assert not within("20:00-24:00", time(0, 0))
    assert not within("20:00-24:00", time(19, 59))


@pytest.mark.parametrize(
    "values",
    [{"hours": "8-17"}, {"hours": "08:00-25:00"}, {"hours": "08:00-08:00"}, {"hours": "24:00-08:00"},
     {"max_rounds": 0}, {"smallest_cohort": 0}, {"max_epochs": 1},
     {"tasks": {"heart": {"code_sha256": "AB" * 32}}}, {"tasks": {"heart": {}}},
     {"tasks": {"../x": {"code_sha256": "any"}}}],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(values):
    with pytest.raises(ValueError, match="validation error"):
        Policy.model_validate(values)


def test_the_written_policy_reads_back_as_default_deny(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(policy_toml({}))
    assert load(Policy, path) == Policy()
    path.write_text(policy_toml({"heart": CODE, "lung.v2": "any"}))
    loaded = load(Policy, path)
    assert {name: task.code_sha256 for name, task in loaded.tasks.items()} == {"heart": CODE, "lung.v2": "any"}
    # Every commented suggestion is valid once it is uncommented.
    text = path.read_text().replace("# hours", "hours").replace("# smallest", "smallest").replace("# max_r", "max_r")
    path.write_text(text)
    assert load(Policy, path).max_rounds == 100
    path.write_text("hour = 3\n")
    with pytest.raises(ConfigError) as caught:
        load(Policy, path)
    assert caught.value.hint == "did you mean hours?"
