"""The page about a run: complete, and nothing in it is ever markup of somebody else's."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from foedus.server.report import render
from loopback import plan

EVIL = "<script>alert(1)</script>'\"&"


def run(**changes):
    part = {
        "site": "berlin",
        "phase": "train",
        "verdict": "accepted",
        "code": "",
        "reason": "",
        "num_examples": 7,
        "metrics": {},
    }
    rounds = [
        {
            "number": number,
            "state": "evaluated",
            "reason": "",
            "model_sha256": f"{number}" * 64,
            "started": 1.0,
            "finished": 2.0,
            "training_metrics": {"loss": 0.5},
            "evaluation_metrics": {"auc": 0.5 + number / 10},
            "participations": [
                part,
                {**part, "site": "paris", "verdict": "refused", "code": "SiteVeto", "reason": "no"},
            ],
        }
        for number in (1, 2)
    ]
    values = {
        "id": "3fa9",
        "name": "toy",
        "state": "finished",
        "reason": "",
        "round": 2,
        "created": 1_700_000_000.0,
        "initial_sha256": "a" * 64,
        "last_sha256": "b" * 64,
        "best_sha256": None,
        "plan": plan().model_dump(mode="json"),
        "rounds": rounds,
    }
    return {**values, **changes}


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name, value)

    def handle_data(self, data):
        self.text.append(data)


def read(page):
    reader = Reader()
    reader.feed(page)
    return reader


def test_it_tells_what_happened():
    reader = read(render(run()))
    text = " ".join(" ".join(reader.text).split())
    assert "Run 3fa9 (toy)" in text
    assert "auc: 0.7" in text
    assert "Finished after 2 of 1 rounds" in text
    assert "berlin 2 2 7" in text
    assert "paris 2 0 0" in text
    assert "SiteVeto no" in text
    assert reader.tags.count("polyline") == 1


def test_a_run_without_rounds():
    text = " ".join(read(render(run(rounds=[], round=0))).text)
    assert "No evaluation." in text
    assert "every site that was asked took part" in text


@pytest.mark.adversarial
def test_foreign_text_is_never_markup():
    harmless = read(render(run())).tags
    hostile = run(name=EVIL, reason=EVIL, id=EVIL)
    hostile["plan"]["evaluation"]["metric"] = EVIL
    for round in hostile["rounds"]:
        round["training_metrics"] = {EVIL: 1.0}
        round["evaluation_metrics"] = {EVIL: float(round["number"])}
        round["participations"] = [
            {**part, "site": EVIL, "code": EVIL, "reason": EVIL} for part in round["participations"]
        ]
    page = render(hostile)
    assert "<script" not in page.lower()
    assert sorted(set(read(page).tags)) == sorted(set(harmless))
    assert EVIL in "".join(read(page).text)
