"""Questions typed as an operator types them, and what a site's administrator can see before."""

from __future__ import annotations

import json

import numpy as np
import pytest
from query_federation import ages_of, query_trial
from real_sites import serving
from shell import Shell

QUERY = """
name = "How old?"
withhold_below = 0

[[questions]]
kind = "mean"
column = "age"
low = 0
high = 120

[[questions]]
kind = "histogram"
column = "age"
edges = [0, 60, 120]
"""
NOISE = "\n[noise]\nmultiplier = 2.0\n"


async def test_asked_listed_and_shown(tmp_path):
    (tmp_path / "ages.toml").write_text(QUERY)
    (tmp_path / "noisy.toml").write_text(QUERY + NOISE)
    ages = np.concatenate([ages_of(place) for place in range(5)])
    async with query_trial(tmp_path, 5) as trial, serving(trial.local, *trial.homes):
        shell = Shell(tmp_path, trial.local.home.operator)
        out, _ = await shell.run("analytics", "run", "ages.toml")
        lines = out.splitlines()
        assert lines[2].split() == ["QUESTION", "COLUMN", "VALUE", "FROM", "TO", "RECORDS"]
        assert lines[3].split()[:2] == ["mean", "age"]
        assert float(lines[3].split()[2]) == pytest.approx(ages.mean(), rel=1e-6)
        assert lines[4].split()[:5] == ["histogram", "[0,", "60)", "age", str((ages < 60).sum())]
        assert lines[-1] == "from 5 sites, without noise; the true value lies between FROM and TO"

        data = await shell.json("analytics", "run", "noisy.toml")
        assert (data["state"], data["query"]["noise"]["multiplier"]) == ("answered", 2.0)
        assert 0 < data["answer"]["epsilon"] < 6
        assert [site["verdict"] for site in data["sites"]] == ["accepted"] * 5
        assert await shell.json("analytics", "show", data["id"][:8]) == data
        out, _ = await shell.run("analytics", "show", data["id"])
        assert f"with noise: ε = {data['answer']['epsilon']:.4g} at δ = 1e-06 for each person" in out

        status = await shell.json("site", "status", "--home", trial.homes[0].path)
        assert (status["answers"], status["epsilon"]) == (2, None)
        out, _ = await shell.run("site", "status", "--home", trial.homes[0].path)
        assert "questions answered: 2, some exactly, so that no ε holds" in out

        listed = await shell.json("analytics", "ls")
        assert [query["state"] for query in listed] == ["answered", "answered"]
        assert listed[1]["id"] == data["id"]
        assert (await shell.run("analytics", "ls"))[0].splitlines()[0].split() == [
            "ID",
            "NAME",
            "STATE",
            "CREATED",
            "REASON",
        ]


async def test_what_has_no_answer_says_why_and_exits_accordingly(tmp_path):
    (tmp_path / "ages.toml").write_text(QUERY)
    (tmp_path / "wrong.toml").write_text(QUERY.replace("edges", "edge"))
    async with query_trial(tmp_path, 5, policies=[""]) as trial:
        shell = Shell(tmp_path, trial.local.home.operator)
        error = await shell.refused(2, "ConfigError", "analytics", "run", "wrong.toml")
        assert "questions.1.histogram.edges is missing" in error["message"]
        await shell.refused(2, "ConfigError", "analytics", "run", "nothing.toml")
        async with serving(trial.local, *trial.homes):
            error = await shell.refused(5, "PolicyRefused", "analytics", "run", "ages.toml")
            assert (
                "site-0: query 'How old?': this site does not answer about the column 'age' (SiteVeto)"
                in error["message"]
            )
        (one,) = await shell.json("analytics", "ls")
        out, _ = await shell.run("analytics", "show", one["id"])
        assert "is failed: 4 connected sites" in out
        assert "site-0  refused  SiteVeto" in out
        await shell.refused(2, "NotFound", "analytics", "show", "no such")
        (tmp_path / "soon.toml").write_text("deadline_seconds = 0.1\n" + QUERY)
        error = await shell.refused(1, "RoundFailed", "analytics", "run", "soon.toml")
        assert "0 connected sites that the roster names would answer" in error["message"]


async def test_a_site_sees_what_it_would_count_and_what_would_leave(tmp_path):
    (tmp_path / "ages.toml").write_text(QUERY)
    async with query_trial(tmp_path, 1, signed=False) as trial:
        shell, home = Shell(tmp_path, trial.local.home.operator), trial.homes[0]
        words = ("site", "preview", "--query", "ages.toml", "--home", home.path)
        data = await shell.json(*words, "out")
        mean, bins = data["counters"]
        ages = np.array(ages_of(0))
        assert (mean["kind"], mean["column"], mean["num_records"]) == ("mean", "age", len(ages))
        assert mean["counters"] == [60 * len(ages), int((ages - 60).sum())]
        assert bins["counters"] == [int((ages < 60).sum()), int((ages >= 60).sum()), 0]
        assert json.loads((tmp_path / "out" / "query.json").read_text()) == data
        masked = (tmp_path / "out" / "query.bin").read_bytes()
        assert len(masked) == data["words"]["num_bytes"] == 5 * 8
        assert not set(np.frombuffer(masked, np.int64).tolist()) & {*mean["counters"], *bins["counters"]}
        assert [said["message"] for said in data["secure"]] == ["keys", "shares", "masked", "ack", "unmask"]
        assert (tmp_path / "out" / "query.json").stat().st_mode & 0o777 == 0o600
        out, _ = await shell.run("site", "doctor", "--home", home.path)
        assert (await shell.json("site", "status", "--home", home.path))["epsilon"] == 0
        assert "ok   records: 3 columns: age, sex, patient" in out
        home.policy.write_text(home.policy.read_text().replace('"age", ', ""))
        error = await shell.refused(5, "SiteVeto", *words)
        assert "does not answer about the column 'age'" in error["message"]
        assert not (tmp_path / "preview").exists()
        (home.path / "records.py").write_text("def records(**_):\n    raise OSError('no such clinic')\n")
        out, _ = await shell.run("site", "doctor", "--home", home.path, code=1)
        assert "FAIL records: records.py:records failed with OSError" in out
        assert "run the function by itself" in out
        _, err = await shell.run("site", "preview", "--home", home.path, code=2)
        assert "name a TASK, or a --query" in err
