import hashlib
import json
from dataclasses import fields

import numpy as np
import pytest
from foedus import __version__
from foedus.client_sdk.loading import code_sha256
from foedus.client_sdk.preview import preview
from foedus.errors import ConfigError, InvalidUpdate, PolicyRefused
from foedus.layout import layout_of
from foedus.modelfile import Model, write_model
from foedus.privacy.secagg.signing import Signed
from foedus.protos.messages import (
    Evaluation,
    Heartbeat,
    Hello,
    Phase,
    Refusal,
    SecureMessage,
    SiteMessage,
    UploadHeader,
    Work,
)
from foedus.protos.wire import site_message_from_pb, site_message_to_pb, upload_header_from_pb, upload_header_to_pb

TASK = """
import numpy as np
from foedus.client_sdk.array_task import ArrayTask

def train(arrays, job):
    return {"w": arrays["w"] + 1}, 10, {"loss": 0.5}

def evaluate(arrays):
    return 7, {"auc": float(arrays["w"].sum())}

toy = ArrayTask(name="toy", initial=lambda seed: {"w": np.zeros(4, np.float32)}, train=train, evaluate=evaluate)
"""
PLAN = 'name = "toy"\ntask = "toy"\nrounds = 1\n[training]\nsteps = 1\n[cohort]\ncount = 1\n[evaluation]\nevery = 0\n'


@pytest.fixture
def home(tmp_path):
    (tmp_path / "toy.py").write_text(TASK)
    (tmp_path / "policy.toml").write_text("")
    (tmp_path / "site.toml").write_text(
        'name = "berlin"\nfederation = "hearts"\nserver = "h:1"\n[tasks.toy]\nentry = "toy.py:toy"\n'
    )
    return tmp_path


def test_every_field_that_leaves_is_shown(home, tmp_path):
    arrays = {"w": np.full(4, 2, np.float32)}
    path = tmp_path / "model.safetensors"
    model = write_model(path, Model.of(layout_of(arrays), arrays))
    shown = preview(home, "toy", tmp_path / "out", model=path, plan=None)
    data = (tmp_path / "out" / "update.bin").read_bytes()
    assert data == np.ones(4, "<f4").tobytes()
    assert json.loads((tmp_path / "out" / "update.json").read_text())["upload"] == shown["upload"]
    assert shown["upload"] == {
        "run": "preview",
        "round": 1,
        "model_sha256": model.digest(),
        "layout_sha256": model.layout.digest,
        "num_bytes": 16,
        "sha256": hashlib.sha256(data).hexdigest(),
        "num_examples": 10,
        "num_steps": shown["upload"]["num_steps"],
        "metrics": {"loss": 0.5},
        "masked": "",
    }
    assert (shown["protection"], shown["secure"]) == ("none", [])
    assert shown["hello"]["version"] == __version__
    assert shown["hello"]["tasks"] == ({"name": "toy", "code_sha256": code_sha256("toy.py:toy", home)},)
    evaluation = shown["evaluation"]
    assert (evaluation["num_examples"], evaluation["metrics"]) == (7, {"auc": 8.0})
    assert evaluation["model_sha256"] == model.digest()
    assert shown["tensors"] == [{"name": "w", "shape": [4], "role": "trainable"}]


def test_all_kinds_of_messages_are_shown_and_could_be_sent(home, tmp_path):
    """A kind of message or a field that is added later is missed here."""
    shown = preview(home, "toy", tmp_path / "out", model=None, plan=None)
    kinds = {"hello": Hello, "heartbeat": Heartbeat, "refusal": Refusal, "evaluation": Evaluation}
    assert {*kinds.values(), SecureMessage} == set(SiteMessage.__args__)
    for key, kind in {**kinds, "upload": UploadHeader}.items():
        assert set(shown[key]) == {field.name for field in fields(kind)}, key
    header = UploadHeader(**{**shown["upload"], "masked": b""})
    assert upload_header_from_pb(upload_header_to_pb(header)) == header
    work = Work("preview", 1, Phase.EVALUATE)
    evaluation = Evaluation(**{**shown["evaluation"], "work": work})
    assert site_message_from_pb(site_message_to_pb(evaluation)) == evaluation


def test_without_a_model_the_initial_one_is_named_and_not_left_behind(home, tmp_path):
    arrays = {"w": np.zeros(4, np.float32)}
    expected = write_model(tmp_path / "initial", Model.of(layout_of(arrays), arrays)).digest()
    shown = preview(home, "toy", tmp_path / "out", model=None, plan=None)
    assert shown["upload"]["model_sha256"] == expected
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"update.bin", "update.json"}


def test_a_plan_without_evaluation_sends_none(home, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    assert preview(home, "toy", tmp_path / "out", model=None, plan=plan)["evaluation"] is None


def test_what_could_not_be_sent_is_refused_here_too(home, tmp_path):
    (home / "toy.py").write_text(TASK.replace('"loss"', '"val/loss"'))
    with pytest.raises(InvalidUpdate, match="'val/loss'"):
        preview(home, "toy", tmp_path / "out", model=None, plan=None)
    assert not (tmp_path / "out").exists()


def test_a_task_that_is_not_here(home, tmp_path):
    with pytest.raises(ConfigError, match="no task 'heart'"):
        preview(home, "heart", tmp_path / "out", model=None, plan=None)


MASKED = PLAN.replace("count = 1", "count = 5").replace("rounds = 1", 'rounds = 1\nprotection = "masks"')


def test_under_masks_what_is_shown_is_a_real_sum(home, tmp_path):
    """With nothing of the update, its examples or its metrics in it; each message as it would be signed."""
    plan = tmp_path / "plan.toml"
    plan.write_text(MASKED)
    shown = preview(home, "toy", tmp_path / "out", model=None, plan=plan)
    assert [said["message"] for said in shown["secure"]] == ["keys", "shares", "masked", "ack", "unmask"]
    upload, words = shown["upload"], (tmp_path / "out" / "update.bin").read_bytes()
    assert (upload["num_examples"], upload["num_steps"], upload["metrics"]) == (0, 0, {})
    assert len(words) == upload["num_bytes"] == 4 * (4 + 1)  # and the weight, which is masked as well
    signed = Signed.from_bytes(bytes.fromhex(upload["masked"]))
    assert signed.body == hashlib.sha256(words).digest()
    again = preview(home, "toy", tmp_path / "out", model=None, plan=plan)
    assert again["upload"]["sha256"] != upload["sha256"]


def test_a_protection_that_the_policy_forbids_is_refused_here_too(home, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text(MASKED)
    (home / "policy.toml").write_text('protections = ["none"]\n')
    with pytest.raises(PolicyRefused, match="masks"):
        preview(home, "toy", tmp_path / "out", model=None, plan=plan)
    (home / "policy.toml").write_text("[secure]\nlargest_clip_norm = 1.0\n")
    with pytest.raises(PolicyRefused, match="clip norm 10"):
        preview(home, "toy", tmp_path / "out", model=None, plan=plan)
