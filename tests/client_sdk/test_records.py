"""A site's records: read by its own function, counted here, and nothing of them in an error."""

from __future__ import annotations

from typing import Any

import pytest
from foedus.client_sdk.config import RecordsEntry, SiteConfig, records_toml, site_toml
from foedus.client_sdk.records import read_records
from foedus.configuration import load
from foedus.errors import ConfigError, TaskFailed
from foedus.privacy.analytics.query import Query

SOURCE = """
class Frame:  # as a data frame has it
    def items(self):
        return [("age", (1.0, 2.0)), (3, ["a", "b"])]

def columns(ages=(30.0, 40.0)):
    return {"age": list(ages), "patient": ["a", "a"]}

def frame():
    return Frame()

def square():
    return {"age": [[1.0, 2.0]] and __import__("numpy").ones((2, 2))}

def number():
    return 3

def broken():
    raise KeyError("Mrs Miller")

CONSTANT = 3
"""
COUNT = Query.model_validate({"name": "q", "question": {"kind": "count", "column": "age"}})


@pytest.fixture
def read(tmp_path):
    (tmp_path / "records.py").write_text(SOURCE)

    def read(function: str, **fields: Any):
        return read_records(RecordsEntry(entry=f"records.py:{function}", **fields), tmp_path)

    return read


def test_columns_are_what_the_function_returns(read):
    found = read("columns", parameters={"ages": [1.0, 2.0, 3.0]})
    assert found.columns == {"age": [1.0, 2.0, 3.0], "patient": ["a", "a"]}
    assert found.people_R is None
    assert read("columns").counted(COUNT).tolist() == [2]
    frame = read("frame").columns
    assert frame["age"].tolist() == [1.0, 2.0]
    assert frame["3"] == ["a", "b"]


def test_records_of_one_person_are_counted_as_one(read):
    assert read("columns", person="patient").counted(COUNT).tolist() == [1]


@pytest.mark.parametrize(
    ("function", "fields", "words"),
    [
        ("number", {}, "returned a int, expected columns by name"),
        ("square", {}, "column 'age' has 2 dimensions, expected 1"),
        ("CONSTANT", {}, "is a int, expected a function"),
        ("colums", {}, "has no attribute"),
        ("columns", {"person": "patients"}, "returns no column 'patients'"),
    ],
)
def test_what_is_no_records(read, function, fields, words):
    with pytest.raises(ConfigError, match=words):
        read(function, **fields)


def test_an_error_of_the_function_names_no_record(read):
    with pytest.raises(TaskFailed, match="failed with KeyError") as caught:
        read("broken")
    assert "Miller" not in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_records_do_not_print(read):
    assert "30" not in repr(read("columns"))


def test_what_is_written_is_read_again(tmp_path):
    entry = RecordsEntry(entry='a "b".py:records', parameters={"rows": [1, 2], "name": "ä"}, person="patient")
    path = tmp_path / "site.toml"
    path.write_text(site_toml("berlin", "hearts", "h:1", {}) + records_toml(entry))
    assert load(SiteConfig, path).records == entry
    path.write_text(site_toml("berlin", "hearts", "h:1", {}) + records_toml(RecordsEntry(entry="a:b")))
    assert load(SiteConfig, path).records == RecordsEntry(entry="a:b")
