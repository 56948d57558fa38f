"""Logs: their two forms, their level, and what they never show."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foedus import logs
from foedus.errors import ConfigError, QuorumNotMet
from foedus.logs import log_event
from foedus.privacy.secrets import Secret
from hypothesis import given
from hypothesis import strategies as st

log = logging.getLogger("foedus.tests")
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _leave_logging_as_it_was() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("foedus")
    handlers, level = list(root.handlers), own.level
    yield
    root.handlers[:] = handlers
    own.setLevel(level)


@pytest.fixture
def stream() -> io.StringIO:
    stream = io.StringIO()
    logs.configure("info", stream)
    return stream


def line(stream: io.StringIO) -> dict[str, Any]:
    (only,) = stream.getvalue().splitlines()
    return json.loads(only)


def test_an_event_is_one_json_object_where_nobody_watches(stream: io.StringIO) -> None:
    log_event(log, "round_committed", run="r1", round=3, loss=0.5, sites=["a", "b"], ok=True, path=Path("x/y"))
    got = line(stream)
    assert got.pop("time").endswith("Z")
    assert got == {
        "level": "info",
        "logger": "foedus.tests",
        "event": "round_committed",
        "run": "r1",
        "round": 3,
        "loss": 0.5,
        "sites": ["a", "b"],
        "ok": True,
        "path": "x/y",
    }


def test_an_event_is_a_line_of_text_on_a_terminal() -> None:
    stream = Terminal()
    logs.configure("info", stream)
    log_event(log, "round_failed", logging.WARNING, run="r1", reason='two words, "quoted"', seconds=1.5)
    _, rest = stream.getvalue().split(" ", 1)
    assert rest == 'warning round_failed run=r1 reason="two words, \\"quoted\\"" seconds=1.5\n'


def test_the_format_can_be_forced() -> None:
    terminal, file = Terminal(), io.StringIO()
    logs.configure("info", terminal, "json")
    log_event(log, "started")
    assert line(terminal)["event"] == "started"
    logs.configure("info", file, "text")
    log_event(log, "started")
    assert file.getvalue().endswith("info    started\n")
    assert len(terminal.getvalue().splitlines()) == 1, "configuring again replaces the earlier stream"


def test_the_level_changes_while_running(stream: io.StringIO) -> None:
    log_event(log, "step_done", logging.DEBUG)
    assert stream.getvalue() == ""
    logs.set_level("DEBUG")
    log_event(log, "step_done", logging.DEBUG)
    assert line(stream)["level"] == "debug"
    logs.set_level("error")
    log_event(log, "round_committed")
    assert len(stream.getvalue().splitlines()) == 1


def test_other_libraries_are_heard_from_warnings_upwards(stream: io.StringIO) -> None:
    other = logging.getLogger("some.library")
    other.info("chatter")
    other.warning("%s of %d failed", "2", 7)
    assert line(stream)["message"] == "2 of 7 failed"


@pytest.mark.parametrize("level", ["loud", "", "notset"])
def test_an_unknown_level_is_refused(level: str) -> None:
    with pytest.raises(ConfigError, match=f"no log level '{level}'"):
        logs.configure(level, io.StringIO())


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="no log format 'xml'"):
        logs.configure("info", io.StringIO(), "xml")  # type: ignore[arg-type]


def test_our_errors_show_code_and_reason_and_bugs_their_trace(stream: io.StringIO) -> None:
    log_event(log, "round_failed", logging.ERROR, QuorumNotMet("2 of 3 updates arrived"), round=1)
    got = line(stream)
    assert (got["error"], got["reason"], got["round"]) == ("QuorumNotMet", "2 of 3 updates arrived", 1)
    assert "trace" not in got

    stream.truncate(stream.seek(0))
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        log_event(log, "round_failed", logging.ERROR, error)
    got = line(stream)
    assert got["error"] == "ZeroDivisionError"
    assert "raise ZeroDivisionError" in got["trace"]


def test_a_field_cannot_overwrite_the_record(stream: io.StringIO) -> None:
    log_event(log, "site_joined", **{"logger_": 1}, **{"time": "now", "message": "m"})
    got = line(stream)
    assert got["event"] == "site_joined"
    assert got["time"] != "now"
    assert (got["time_"], got["message_"]) == ("now", "m")


class Colour(StrEnum):
    RED = "red"


@dataclass
class Model:
    weights: list[float]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Secret("hunter2"), "***"),
        ([Secret("hunter2")], ["***"]),
        ({"inner": {"token": "hunter2"}}, {"inner": {"token": "***"}}),
        (np.zeros((3, 4), np.float32), "<float32 3x4>"),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        ({"w": np.zeros(2)}, {"w": "<float64 2>"}),
        (b"hunter2", "<7 bytes>"),
        (bytearray(3), "<3 bytes>"),
        (Model([1.0]), "<Model>"),
        (object(), "<object>"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (None, None),
        (Colour.RED, "red"),
        ({1}, [1]),
        (ValueError("bad"), "bad"),
        ("a\nb\u2028c\x1b[31m", "a\\nb\\u2028c\\x1b[31m"),
        (f"key: {PEM}", "key: ***"),
        (PEM.partition("-----END")[0], "***"),
        ("x" * 2_001, "x" * 2_000 + "… (1 characters more)"),
        (list(range(34)), [*range(32), "… 2 more"]),
        ([[[[[1]]]]], [[[["<list>"]]]]),
    ],
)
def test_what_a_field_shows(stream: io.StringIO, value: Any, shown: Any) -> None:
    log_event(log, "seen", value=value)
    assert line(stream)["value"] == shown


def test_a_tensor_shows_as_its_shape() -> None:
    torch = pytest.importorskip("torch")
    assert logs.render(torch.zeros(2, 3)) == "<torch.float32 2x3>"
    assert logs.render(torch.tensor(2)) == 2


@pytest.mark.parametrize("name", ["secret", "token", "password", "private_key", "invitation", "Token"])
def test_fields_with_a_secrets_name_are_hidden(stream: io.StringIO, name: str) -> None:
    log_event(log, "site_invited", **{name: "hunter2"})
    assert line(stream)[name] == "***"


@pytest.mark.parametrize("format", ["text", "json"])
def test_plain_messages_are_guarded_too(format: Any) -> None:
    stream = io.StringIO()
    logs.configure("info", stream, format)
    log.warning("got %s and %s of %d", np.arange(3), Secret("hunter2"), 2)
    log.warning("got %(token)s", {"token": "hunter2"})
    log.warning(f"forged\n2026-01-01T00:00:00Z info    run_finished {PEM}")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "got <int64 3> and *** of 2" in lines[0]
    assert "got ***" in lines[1]
    assert "hunter2" not in stream.getvalue()
    assert "MHcC" not in stream.getvalue()


def test_a_message_whose_argument_is_hidden_is_still_written() -> None:
    record = log.makeRecord("foedus", logging.WARNING, "f.py", 1, "%d bytes wanted", (Secret("hunter2"),), None)
    assert json.loads(logs.JsonLines().format(record))["message"] == "%d bytes wanted ('***',)"


@given(st.text(), st.sampled_from(["text", "json"]))
def test_no_text_ever_forges_a_line(text: str, format: Any) -> None:
    stream = io.StringIO()
    logs.configure("info", stream, format)
    log_event(log, "seen", value=text)
    log.warning(text)
    assert len(stream.getvalue().splitlines()) == 2
    if format == "json":
        assert [type(json.loads(each)) for each in stream.getvalue().splitlines()] == [dict, dict]
