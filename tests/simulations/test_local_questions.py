"""A federation of real processes that is asked about its records, as the demonstration asks it."""

from __future__ import annotations

import numpy as np
import pytest
from foedus.errors import PolicyRefused
from foedus.privacy.analytics.query import Query
from foedus.simulations.local import LocalFederation

TASK = """
import numpy as np
from foedus import ArrayTask

task = ArrayTask(
    name="add",
    initial=lambda seed: {"w": np.zeros(3, np.float32)},
    train=lambda arrays, job: (arrays, 10),
    evaluate=lambda arrays: (10, {}),
)

def records(seed):
    return {f"feature{place}": column for place, column in enumerate(np.random.default_rng(seed).normal(size=(13, 50)))}
"""
SECURE = "\n[secure]\nmin_sites = 4\nmin_survivors = 4\n"
POLICY = {"columns": "any", "min_sites": 4}
COLUMNS = [f"feature{place}" for place in range(13)]


def test_means_and_variances_of_thirteen_columns_in_one_sum(tmp_path):
    (tmp_path / "task.py").write_text(TASK)
    bounds = {"low": -10, "high": 10, "scale": 1000}
    questions = [{"kind": kind, "column": column} | bounds for column in COLUMNS for kind in ("mean", "variance")]
    query = Query.model_validate({"name": "scaling", "min_sites": 4, "questions": questions})
    with LocalFederation(tmp_path) as federation:
        federation.start_server()
        for seed, site in enumerate("abcd"):
            home = federation.add_site(site, f"{tmp_path / 'task.py'}:task")
            home.policy.write_text(home.policy.read_text() + SECURE)
            federation.open_records(site, f"{tmp_path / 'task.py'}:records", {"seed": seed}, policy=POLICY)
        federation.sign_roster()
        for site in "abcd":
            federation.start_site(site)
        found = federation.ask(query)
        with pytest.raises(PolicyRefused, match="expects at least 4"):
            federation.ask(query.model_copy(update={"min_sites": 3}))
    everything = np.concatenate([np.random.default_rng(seed).normal(size=(13, 50)) for seed in range(4)], axis=1)
    rounded = np.rint(everything * 1000) / 1000
    values = np.array([one.value for answer in found.answers for one in answer.estimates]).reshape(13, 2)
    np.testing.assert_allclose(values[:, 0], rounded.mean(axis=1), atol=1e-9)
    np.testing.assert_allclose(values[:, 1], rounded.var(axis=1), rtol=1e-9)
    assert (found.num_sites, found.epsilon) == (4, None)
