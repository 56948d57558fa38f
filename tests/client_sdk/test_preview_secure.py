"""A preview under each protection: a real sum with sites that are not there, refused as a real one would be."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from foedus.client_sdk.preview import preview
from foedus.errors import ConfigError, PolicyRefused
from foedus.privacy.secagg import masking, sharing_updates
from foedus.privacy.secagg.messages import Shares
from foedus.privacy.secagg.sharing_messages import split_boxes
from foedus.privacy.secagg.signing import Kind

TASK = """
import numpy as np
from foedus.client_sdk.array_task import ArrayTask

def train(arrays, job):
    return {"w": arrays["w"] + 1}, 10, {"loss": 0.5}

toy = ArrayTask(name="toy", initial=lambda seed: {"w": np.zeros(9, np.float32)}, train=train, evaluate=None)
"""
PLAN = """
name = "toy"
task = "toy"
rounds = 1
protection = "{protection}"
[training]
steps = 1
[evaluation]
every = 0
[cohort]
minimum = {num_sites}
quorum = {num_sites}
[aggregator]
{aggregator}
[secure]
{secure}
"""
MASKED = {"protection": "masks", "num_sites": 5, "aggregator": "", "secure": ""}
NOISY = MASKED | {"secure": 'noise = "skellam"\nnoise_multiplier = 1.0'}
IN_GROUPS = {
    "protection": "groups",
    "num_sites": 15,
    "aggregator": 'name = "trimmed-mean"\nf = 1',
    "secure": "colluders = 2",
}
SKETCHED = {"protection": "sketch", "num_sites": 10, "aggregator": 'name = "multi-krum"\nf = 1', "secure": ""}
SHARED = {
    "protection": "shares",
    "num_sites": 10,
    "aggregator": 'name = "geometric-median"\nf = 1',
    "secure": "",
}

SUM = ["keys", "shares", "masked", "ack", "unmask"]
PRODUCTS = ["products", "ack", "sum"]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "toy.py").write_text(TASK)
    (tmp_path / "policy.toml").write_text("secure = { colluding_percent_in_groups = 13, unequal_weights = true }\n")
    (tmp_path / "site.toml").write_text(
        'name = "berlin"\nfederation = "hearts"\nserver = "h:1"\n[tasks.toy]\nentry = "toy.py:toy"\n'
    )
    return tmp_path


def previewed(home, wanted):
    path = home / "plan.toml"
    path.write_text(PLAN.format(**wanted))
    shown = preview(home, "toy", home / "out", model=None, plan=path)
    assert json.loads((home / "out" / "update.json").read_text())["secure"] == shown["secure"]
    return shown, (home / "out" / "update.bin").read_bytes()


@pytest.mark.parametrize(
    ("wanted", "messages", "num_values"),
    [
        (MASKED, SUM, 10),  # with the weight
        (NOISY, SUM, 9),
        (IN_GROUPS, SUM, 9),
        (IN_GROUPS | {"secure": 'colluders = 2\nnoise = "discrete-gaussian"\nnoise_multiplier = 1.0'}, SUM, 9),
        (SKETCHED, ["keys", "shares", "masked", "deal", "agree", *PRODUCTS], 9),
        (
            SKETCHED | {"secure": "strict = true"},
            ["keys", "shares", "masked", "deal", "agree", "confirm", *PRODUCTS],
            9,
        ),
        (SHARED, ["keys", "masked", "agree", "confirm", *PRODUCTS], None),
    ],
)
def test_all_that_this_site_says_is_shown_as_it_would_be_sent(home, wanted, messages, num_values):
    shown, words = previewed(home, wanted)
    assert [said["message"] for said in shown["secure"]] == messages
    sent = {said["message"]: bytes.fromhex(said["hex"]) for said in shown["secure"]}
    signed = {name: split_boxes(data)[0] for name, data in sent.items()}
    assert {name: message.kind.label for name, message in signed.items()} == {name: name for name in messages}
    assert len({message.sender for message in signed.values()}) == 1
    assert len({message.sid for message in signed.values()}) == 1
    assert all(said["num_bytes"] == len(sent[said["message"]]) and said["holds"] for said in shown["secure"])
    assert signed["masked"].body == hashlib.sha256(words).digest()
    upload = shown["upload"]
    assert (upload["sha256"], upload["num_bytes"]) == (hashlib.sha256(words).hexdigest(), len(words))
    assert upload["masked"] == sent["masked"].hex()
    assert (upload["num_examples"], upload["num_steps"], upload["metrics"]) == (0, 0, {})
    if num_values is not None:
        assert len(words) == 4 * num_values


@pytest.mark.parametrize("wanted", [MASKED, NOISY, IN_GROUPS, SKETCHED])
def test_under_the_masks_is_this_update(home, wanted, monkeypatch):
    _, words = previewed(home, wanted)
    _, again = previewed(home, wanted)
    assert words != again
    monkeypatch.setattr(masking, "fold", lambda *_, **__: None)  # no mask is put on
    _, bare = previewed(home, wanted | {"secure": f"{wanted['secure']}\nscale = 1024"})
    words_D = np.frombuffer(bare, "<u4").view("<i4")
    if wanted is NOISY:  # of deviation 10 * 1024 / 2
        assert 0 < np.abs(words_D - 1024).max() < 8 * 5120
    else:
        assert words_D.tolist() == ([10 * 1024] * 9 + [10] if wanted is MASKED else [1024] * 9)  # by 10 examples


def test_in_the_shares_is_this_update(home, monkeypatch):
    shared = []

    def noted(session, update_D, seed):
        shared.append(update_D.tolist())
        return masking.plain_words(session, update_D, seed)

    monkeypatch.setattr(sharing_updates, "plain_words", noted)
    previewed(home, SHARED)
    assert shared == [[1.0] * 9] + [[0.0] * 9] * 9


def test_of_groups_this_sites_own_is_played_through(home):
    shown, _ = previewed(home, IN_GROUPS)
    dealt = Shares.from_bytes(split_boxes(bytes.fromhex(shown["secure"][1]["hex"]))[0].body)
    assert len(dealt.sealed) == 4


def test_an_update_in_shares_has_a_box_for_every_other_site(home):
    shown, words = previewed(home, SHARED)
    deal, boxes = split_boxes(words)
    assert (deal.kind, len(boxes)) == (Kind.DEAL, 9)
    assert shown["holds"] == "this site's update, in shares sealed for each other site; the server cannot read them"


def test_what_a_sum_with_noise_costs_is_said(home):
    """As the Gaussian mechanism does, whose ε is 5.22 at δ = 1e-6 with the noise of one clip norm."""
    assert 5.2 < previewed(home, NOISY)[0]["epsilon"] < 5.3
    assert previewed(home, MASKED)[0]["epsilon"] is None


def test_what_the_words_hold_is_said(home):
    assert previewed(home, NOISY)[0]["holds"].startswith("this site's update and skellam noise, masked")
    assert previewed(home, MASKED)[0]["holds"].startswith("this site's update, masked")
    for wanted, what in ((SKETCHED, "sketches"), (SHARED, "updates")):
        holds = {said["message"]: said["holds"] for said in previewed(home, wanted)[0]["secure"]}
        assert f"every two sites' {what}" in holds["products"]
        assert f"the sum of the selected {what}" in holds["sum"]
        assert "who is selected" in holds["ack"]
    clear = MASKED | {"protection": "none"}
    assert "the server sees it" in previewed(home, clear)[0]["holds"]


@pytest.mark.parametrize(
    ("policy", "wanted", "told"),
    [
        ('protections = ["masks"]', SKETCHED, "the run's protection is sketch, the site's policy allows masks"),
        (
            'protections = ["masks"]',
            MASKED | {"protection": "none"},
            "the run's protection is none, the site's policy allows masks",
        ),
        ("smallest_cohort = 11", SKETCHED, "the round asks 10 sites, the site's policy demands at least 11"),
        ("[secure]\nmin_noise_multiplier = 2.0", NOISY, "the noise multiplier is 1, this site expects at least 2"),
        ("[secure]\nmin_noise_multiplier = 0.5", SHARED, "the noise multiplier is 0, this site expects at least 0.5"),
        ("[secure]\ncolluding_percent = 40", SKETCHED, "withstands 2 colluding sites, this site expects 4 of 10"),
        ("[secure]\nlargest_clip_norm = 5", SHARED, "the clip norm 10 is outside 1e-06 to 5"),
        (
            "[secure]\nmin_sites = 7\ncolluding_percent_in_groups = 13",
            IN_GROUPS,
            "groups of 5 from 15 sites, this site expects groups of at least 7",
        ),
        (
            "[secure]\ncolluding_percent_in_groups = 13",
            IN_GROUPS | {"secure": 'regroup = "round"\ncolluders = 2'},
            "this site does not allow groups that change from round to round",
        ),
        ("", IN_GROUPS, "withstands 2 colluding sites, this site expects 3 of 15"),
    ],
)
def test_what_the_policy_forbids_is_refused_here_too(home, policy, wanted, told):
    (home / "policy.toml").write_text(f"{policy}\n")
    with pytest.raises(PolicyRefused, match=told):
        previewed(home, wanted)
    assert not (home / "out").exists()


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (SKETCHED | {"secure": NOISY["secure"]}, "noise would drown the distances"),
        (MASKED | {"aggregator": SKETCHED["aggregator"]}, "'multi-krum' looks at single updates"),
        (IN_GROUPS | {"num_sites": 5, "secure": "group_size = 6"}, "5 sites are fewer than one group of 6"),
        (SHARED | {"secure": "packing = 5"}, "K = 5"),
        (NOISY | {"aggregator": 'weighting = "examples"'}, "all updates weigh the same"),
    ],
)
def test_a_plan_that_no_server_takes_is_refused_in_its_words(home, wanted, told):
    with pytest.raises(ConfigError, match=told):
        previewed(home, wanted)
