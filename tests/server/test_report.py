"""The page about a run: complete, and nothing in it is ever markup of somebody else's."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from foedus.server.report import render
from foedus.server.score_map import score_map
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
        "weight": 1.0,
        "score": None,
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
                {**part, "site": "paris", "verdict": "refused", "code": "SiteVeto", "reason": "no", "weight": None},
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
    assert "Trust" not in text  # the mean neither scores nor leaves out
    assert "paris 2 0 0" in text
    assert "SiteVeto no" in text
    assert reader.tags.count("polyline") == 1


def test_a_run_without_rounds():
    text = " ".join(read(render(run(rounds=[], round=0))).text)
    assert "No evaluation." in text
    assert "every site that was asked took part" in text


def scored(site, score, verdict="accepted", weight=0.5):
    left_out = {"code": "LeftOut", "reason": "multi-krum left it out"} if verdict == "rejected" else {}
    return {**run()["rounds"][0]["participations"][0], "site": site, "score": score, "verdict": verdict} | left_out


def rounds_of(*rounds):
    template = run()["rounds"][0]
    return [{**template, "number": k, "participations": parts} for k, parts in enumerate(rounds, 1)]


ATTACKED = rounds_of(
    [scored("a", 1.0), scored("b", 2.0), scored("eve", 300.0, "rejected")],
    [scored("a", 2.0), scored("b", 4.0), scored("eve", 40.0, "rejected")],
    [scored("a", 3.0), scored("b", 3.0, "rejected"), scored("eve", 3.0)],
)


def test_who_was_left_out_and_how_far_it_was_trusted():
    page = render(run(rounds=ATTACKED))
    reader = read(page)
    text = " ".join(" ".join(reader.text).split())
    assert "How far the rule mean trusted each update" in text
    assert "a 0 2" in text  # never left out, median score 2
    assert "b 1 3" in text
    assert "eve 2 40" in text
    assert "round 2: left out, score 40" in text
    assert "1 eve train rejected LeftOut multi-krum left it out 300" in text
    assert reader.tags.count("rect") == 9
    assert reader.tags.count("path") == 3  # a cross for each that was left out
    assert 'aria-label="eve was left out of 2 of 3 rounds"' in page


def test_a_score_is_shaded_by_how_far_it_is_above_its_rounds_median():
    a, b, eve = score_map(ATTACKED)
    assert [cell.place for cell in eve.cells] == [0, 1, 2]
    assert [cell.shade for cell in a.cells] == [0.08] * 3
    assert b.cells[0].shade == 0.08  # the median itself
    assert eve.cells[0].shade == 1.0  # 150 times
    assert eve.cells[1].shade == pytest.approx(0.5)  # 10 times is half of the way to 100 times
    (x, y, z) = score_map(rounds_of([scored("x", 0.0), scored("y", 0.0), scored("z", 0.8)]))
    assert [row.cells[0].shade for row in (x, y, z)] == [0.08, 0.08, 1.0]


def test_a_rule_without_scores_that_leaves_out():
    a, eve = score_map(rounds_of([scored("a", None), scored("eve", None, "rejected")]))
    assert (a.num_left_out, a.median_score, eve.num_left_out) == (0, None, 1)
    assert eve.cells[0].told == "round 1: left out"


def test_a_site_that_was_away_has_no_cell():
    away = {**scored("a", None), "verdict": "absent"}
    a, b = score_map(rounds_of([scored("a", 1.0), scored("b", 1.0)], [away, scored("b", 2.0)], [scored("a", 1.0)]))
    assert [cell.place for cell in a.cells] == [0, 2]
    assert [cell.place for cell in b.cells] == [0, 1]


@pytest.mark.adversarial
def test_foreign_text_is_never_markup():
    harmless = read(render(run(rounds=ATTACKED))).tags + read(render(run())).tags
    hostile = run(name=EVIL, reason=EVIL, id=EVIL)
    hostile["plan"]["evaluation"]["metric"] = EVIL
    for round in hostile["rounds"]:
        round["training_metrics"] = {EVIL: 1.0}
        round["evaluation_metrics"] = {EVIL: float(round["number"])}
        round["participations"] = [
            {**part, "site": EVIL, "code": EVIL, "reason": EVIL, "score": 1.0} for part in round["participations"]
        ]
    page = render(hostile)
    assert "<script" not in page.lower()
    assert set(read(page).tags) <= set(harmless)
    assert EVIL in "".join(read(page).text)
