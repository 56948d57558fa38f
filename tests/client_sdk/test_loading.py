import hashlib
import pickle
import sys

import pytest
from foedus.client_sdk.config import TaskEntry
from foedus.client_sdk.loading import code_sha256, load_task, load_tasks
from foedus.errors import ConfigError

TASK = """
class Heart:
    name = "heart"
    def __init__(self, rows=1):
        self.rows = rows
    def layout(self): ...
    def initial(self, seed): ...
    def train(self, received, job): ...
    def evaluate(self, model): ...

task = Heart(7)
def make(rows): return Heart(rows)
def wrong(): return 3
def broken(): raise RuntimeError("no data")
number = 3
"""


@pytest.fixture
def base(tmp_path):
    (tmp_path / "heart.py").write_text(TASK)
    package = tmp_path / "clinic_of_tests"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "tasks.py").write_text("from .inner import helper\n" + TASK)
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "helper.py").write_text("x = 1\n")
    (tmp_path / "single_of_tests.py").write_text(TASK)
    before, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if "of_tests" in name or name.startswith("foedus_task_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("entry", "parameters", "rows"),
    [
        ("heart.py:task", {}, 7),
        ("heart.py:make", {"rows": 4}, 4),
        ("heart.py:Heart", {}, 1),
        ("heart.py:Heart", {"rows": 2}, 2),
        ("clinic_of_tests.tasks:make", {"rows": 9}, 9),
        ("single_of_tests:task", {}, 7),
    ],
)
def test_a_task_is_found(base, entry, parameters, rows):
    assert load_task(entry, parameters, base).rows == rows


def test_an_absolute_path_is_found_from_anywhere(base, tmp_path_factory):
    assert load_task(f"{base}/heart.py:task", {}, tmp_path_factory.mktemp("elsewhere")).rows == 7


def test_a_task_from_a_file_can_be_pickled(base):
    assert pickle.loads(pickle.dumps(load_task("heart.py:task", {}, base))).rows == 7  # noqa: S301


@pytest.mark.parametrize(
    ("entry", "parameters", "message"),
    [
        ("missing.py:task", {}, "there is no file"),
        ("missing_of_tests:task", {}, "there is no module 'missing_of_tests'"),
        ("missing_of_tests.deep:task", {}, "could not be found: ModuleNotFoundError"),
        ("heart.py:taks", {}, "no attribute 'taks'"),
        ("heart.py:number", {}, "is a int"),
        ("heart.py:wrong", {}, "returned a int, expected a task"),
        ("heart.py:make", {}, "missing 1 required positional argument"),
        ("heart.py:make", {"columns": 1}, "columns"),
        ("heart.py:broken", {}, "RuntimeError: no data"),
        ("heart.py:task", {"rows": 1}, "takes no parameters"),
    ],
)
def test_each_mistake_has_its_own_sentence(base, entry, parameters, message):
    with pytest.raises(ConfigError) as caught:
        load_task(entry, parameters, base)
    assert message in str(caught.value)


def test_the_nearest_attribute_is_suggested(base):
    with pytest.raises(ConfigError) as caught:
        load_task("heart.py:taks", {}, base)
    assert caught.value.hint == "did you mean task?"


def test_a_file_that_fails_leaves_no_module_behind(base):
    (base / "bad.py").write_text("import nothing_of_this_name")
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(ConfigError, match="could not be imported: ModuleNotFoundError"):
            load_task("bad.py:task", {}, base)
    assert set(sys.modules) == before


def test_the_digest_of_a_file_is_what_sha256sum_says(base):
    expected = hashlib.sha256(TASK.encode()).hexdigest()
    assert code_sha256("heart.py:task", base) == expected
    assert code_sha256("heart.py:make", base) == expected
    assert code_sha256("single_of_tests:task", base) == expected


def test_the_digest_of_a_package_covers_all_its_code_and_nothing_else(base):
    package = base / "clinic_of_tests"
    entry = "clinic_of_tests.tasks:make"
    seen = {code_sha256(entry, base)}
    assert code_sha256("clinic_of_tests:x", base) in seen
    (package / "notes.txt").write_text("x")
    assert code_sha256(entry, base) in seen
    for change in (
        lambda: (package / "inner" / "helper.py").write_text("x = 2\n"),
        lambda: (package / "inner" / "helper.py").rename(package / "inner" / "other.py"),
        lambda: (package / "new.py").write_text(""),
        lambda: (package / "new.py").unlink() or (package / "__init__.py").write_text("import os\n"),
    ):
        change()
        digest = code_sha256(entry, base)
        assert digest not in seen
        seen.add(digest)


def test_names_and_contents_cannot_be_shifted_into_each_other(base):
    package = base / "shifted_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("b.py")
    (package / "b.py").write_text("")
    first = code_sha256("shifted_of_tests:x", base)
    (package / "a.py").write_text("")
    (package / "b.py").write_text("b.py")
    assert code_sha256("shifted_of_tests:x", base) != first


def test_tasks_come_by_their_configured_name(base):
    entry = TaskEntry(entry="heart.py:task")
    installed = load_tasks({"heart": entry}, base)["heart"]
    assert installed.task.name == "heart"
    assert installed.code_sha256 == hashlib.sha256(TASK.encode()).hexdigest()
    with pytest.raises(ConfigError, match="calls itself 'heart'") as caught:
        load_tasks({"lung": entry}, base)
    assert "[tasks.heart]" in caught.value.hint
