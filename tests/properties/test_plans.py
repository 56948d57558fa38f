"""Impossible plans, each refused with the key and the mend; possible ones survive being written out."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from foedus.configuration import load, read_toml, validate, validate_json
from foedus.errors import ConfigError
from foedus.plan import Plan
from hypothesis import given
from hypothesis import strategies as st

BASE = {"name": "heart", "task": "heart", "rounds": 3, "training": {"epochs": 1}}

IMPOSSIBLE = [
    ({"rounds": 0}, "rounds", "greater than 0"),
    ({"rounds": "many"}, "rounds", "valid integer"),
    ({"rounds": 10**7}, "rounds", "less than or equal to 1000000"),
    ({"name": "Heart!"}, "name", "match pattern"),
    ({"name": ""}, "name", "match pattern"),
    ({"task": "../heart"}, "task", "match pattern"),
    ({"seed": -1}, "seed", "greater than or equal to 0"),
    ({"seed": 2**63}, "seed", "less than"),
    ({"training": {}}, "training", "exactly one of epochs and steps"),
    ({"training": {"epochs": 1, "steps": 1}}, "training", "exactly one of epochs and steps"),
    ({"training": {"epochs": 0}}, "training.epochs", "greater than 0"),
    ({"training": {"epochs": 1, "learning_rate": float("nan")}}, "training.learning_rate", "finite"),
    ({"training": {"epochs": 1, "learning_rate": float("inf")}}, "training.learning_rate", "finite"),
    ({"training": {"epochs": 1, "learning_rate": 0}}, "training.learning_rate", "greater than 0"),
    ({"training": {"epochs": 1, "momentum": 1.0}}, "training.momentum", "less than 1"),
    ({"training": {"epochs": 1, "momentum": 0.9, "optimizer": "adam"}}, "training", "momentum belongs to sgd"),
    ({"training": {"epochs": 1, "optimizer": "lbfgs"}}, "training.optimizer", "'sgd', 'adam' or 'adamw'"),
    ({"training": {"epochs": 1, "proximal_mu": -1}}, "training.proximal_mu", "greater than or equal to 0"),
    ({"cohort": {"fraction": 0}}, "cohort.fraction", "greater than 0"),
    ({"cohort": {"fraction": 1.5}}, "cohort.fraction", "less than or equal to 1"),
    ({"cohort": {"fraction": 0.5, "count": 2}}, "cohort", "count or fraction, not both"),
    ({"cohort": {"count": 2, "minimum": 3}}, "cohort", "below minimum 3"),
    ({"cohort": {"count": 2, "quorum": 3}}, "cohort", "above count 2"),
    ({"cohort": {"deadline_seconds": 0}}, "cohort.deadline_seconds", "greater than 0"),
    ({"cohort": {"late": "maybe"}}, "cohort.late", "'drop' or 'keep'"),
    ({"cohort": {"over_selection": 5}}, "cohort.over_selection", "less than or equal to 4"),
    ({"aggregator": {"name": "Magic!"}}, "aggregator.name", "match pattern"),
    ({"aggregator": {"parameters": {"f": 1}}}, "aggregator", "f is no key of parameters: write it beside name"),
    ({"aggregator": {"max_examples": 0}}, "aggregator.max_examples", "greater than 0"),
    ({"server_optimizer": {"name": "sgd"}}, "server_optimizer", "'fedavg'"),
    ({"server_optimizer": {"name": "fedavg", "learning_rate": -1}}, "learning_rate", "greater than 0"),
    ({"evaluation": {"every": 0, "target": 0.9}}, "evaluation", "set every to 1 or more"),
    ({"protection": "secure-sum"}, "protection", "'none'"),
]


@pytest.mark.parametrize(("change", "key", "reason"), IMPOSSIBLE)
def test_impossible(change, key, reason):
    with pytest.raises(ConfigError) as caught:
        validate(Plan, {**BASE, **change}, "plan.toml")
    message = str(caught.value)
    assert message.startswith("plan.toml: ")
    assert key in message
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "key", "hint"),
    [
        ({"round": 3}, "round", "did you mean rounds?"),
        ({"cohort": {"qorum": 1}}, "cohort.qorum", "did you mean quorum?"),
        ({"training": {"epochs": 1, "learnin_rate": 1}}, "training.learnin_rate", "did you mean learning_rate?"),
        ({"server_optimizer": {"name": "fedadam", "taw": 1}}, "taw", "did you mean tau?"),
        ({"zzzzzz": 3}, "zzzzzz", "remove it"),
    ],
)
def test_unknown_keys(change, key, hint):
    with pytest.raises(ConfigError, match=f"{key} is not a known key") as caught:
        validate(Plan, {**BASE, **change}, "plan.toml")
    assert caught.value.hint == hint


def test_a_missing_key():
    with pytest.raises(ConfigError, match="rounds is missing") as caught:
        validate(Plan, {key: value for key, value in BASE.items() if key != "rounds"}, "plan.toml")
    assert "rounds" in caught.value.hint


def test_files(tmp_path):
    path = tmp_path / "plan.toml"
    with pytest.raises(ConfigError, match="there is no file"):
        load(Plan, path)
    path.write_text("name = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(Plan, path)
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(Plan, path)
    path.write_bytes(b"#" * (1 << 21))
    with pytest.raises(ConfigError, match="larger than"):
        load(Plan, path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)


cohorts = st.one_of(
    st.fixed_dictionaries({"fraction": st.floats(0.01, 1)}, optional={"minimum": st.integers(1, 5)}),
    st.fixed_dictionaries({"count": st.integers(2, 9)}, optional={"minimum": st.integers(1, 2), "quorum": st.just(1)}),
)


@given(
    cohorts,
    st.one_of(
        st.fixed_dictionaries({"epochs": st.integers(1, 9)}), st.fixed_dictionaries({"steps": st.integers(1, 9)})
    ),
    st.sampled_from(["fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"]),
    st.integers(0, 2**63 - 1),
)
def test_a_plan_survives_being_written_out(cohort, training, optimizer, seed):
    """The operator's machine sends it so, and the server keeps it so, defaults and all."""
    plan = validate(
        Plan,
        {**BASE, "cohort": cohort, "training": training, "server_optimizer": {"name": optimizer}, "seed": seed},
        "plan",
    )
    assert validate_json(Plan, plan.model_dump_json(), "again") == plan


@pytest.mark.adversarial
@given(
    st.one_of(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from([*BASE, "cohort", "x"]), inner, max_size=5)
            ),
        ).map(json.dumps),
        st.just("[" * 100_000),
    )
)
def test_any_text_is_a_plan_or_a_config_error(text):
    with suppress(ConfigError):
        assert validate_json(Plan, text, "the plan").name
