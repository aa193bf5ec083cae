"""The format of log lines."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from broker.logs import EventLog, LogFormat, configure_logging


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """Restore the root logger after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


def configured(log_format: LogFormat = "text", level: str = "INFO") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(log_format, level, stream)
    return stream


def fail() -> None:
    raise ValueError("two\nlines")


def test_fields_follow_the_message() -> None:
    stream = configured()
    EventLog("broker.net").info("closed a connection", peer="10.0.0.1:5", reason="two words", count=3, name="")
    (line,) = stream.getvalue().splitlines()
    stamp, rest = line[:23], line[24:]
    assert stamp[4] == stamp[7] == "-"
    assert stamp[19] == ","
    assert rest == 'INFO broker.net closed a connection peer=10.0.0.1:5 reason="two words" count=3 name=""'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('say "hi"', r'"say \"hi\""'),
        ("a=b", '"a=b"'),
        ("line\nbreak", r'"line\nbreak"'),
        ("\x1b[31mred", '"\\u001b[31mred"'),
        ("\u2028", r'"\u2028"'),
        ("é", "é"),
        ("back\\slash", r'"back\\slash"'),
    ],
)
def test_values_cannot_forge_fields_or_lines(value: str, shown: str) -> None:
    stream = configured()
    EventLog("x").warning("event", value=value)
    assert stream.getvalue().endswith(f"event value={shown}\n")


def test_message_cannot_contain_a_line_break() -> None:
    stream = configured()
    logging.getLogger("x").warning("a %s", "b\nc")
    assert stream.getvalue().endswith("x a b\\nc\n")


def test_percent_sign_in_an_event_is_literal() -> None:
    stream = configured()
    EventLog("x").info("100 % done")
    assert stream.getvalue().endswith("100 % done\n")


def test_exception_is_logged_on_the_same_line() -> None:
    stream = configured()
    try:
        fail()
    except ValueError as error:
        EventLog("x").error("it failed", error, topic="t")
    (line,) = stream.getvalue().splitlines()
    assert r'ERROR x it failed topic=t error="ValueError: two\nlines" at="test_logs.py:' in line
    assert " fail < test_logs.py:" in line


def test_level_is_a_threshold() -> None:
    stream = configured(level="WARNING")
    EventLog("x").info("unheard")
    EventLog("x").debug("unheard")
    EventLog("x").warning("heard")
    assert len(stream.getvalue().splitlines()) == 1


def test_json_lines_have_the_same_fields() -> None:
    stream = configured("json")
    try:
        fail()
    except ValueError as error:
        EventLog("x").error("it failed", error, topic="t", count=3, level="forged")
    entry = json.loads(stream.getvalue())
    assert entry["event"] == "it failed"
    assert (entry["level"], entry["logger"], entry["topic"], entry["count"]) == ("ERROR", "x", "t", 3)
    assert "in fail" in entry["traceback"]
    assert entry["ts"].endswith("Z")


def test_lines_of_the_standard_module_have_the_same_shape() -> None:
    stream = configured("json")
    logging.getLogger("storage").info("loaded %d logs", 3)
    assert json.loads(stream.getvalue())["event"] == "loaded 3 logs"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_constant_fields_are_on_every_line(log_format: LogFormat) -> None:
    stream = io.StringIO()
    configure_logging(log_format, "INFO", stream, constant={"node_id": 7})
    EventLog("broker").info("an event", count=1)
    logging.getLogger("library").info("a line")
    marks = {"text": "node_id=7", "json": '"node_id": 7'}
    assert [marks[log_format] in line for line in stream.getvalue().splitlines()] == [True, True]
