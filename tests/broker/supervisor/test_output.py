"""Parsing of a node's output."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker.bounded_log import BoundedLog
from broker.supervisor.output import MAX_LINE_BYTES, NodeOutput


@pytest.fixture
def output(tmp_path: Path) -> Iterator[NodeOutput]:
    with closing(BoundedLog(tmp_path / "ottla.log")) as log:
        yield NodeOutput(3, log)


def test_started_line_marks_the_node_as_serving_in_any_chunks(output: NodeOutput) -> None:
    for byte in b"INFO [KafkaServer id=3] started took_ms=9\n":
        assert not output.is_serving
        output.feed(bytes([byte]))
    assert output.is_serving


def test_started_line_of_another_node_is_ignored(output: NodeOutput) -> None:
    output.feed(b"INFO [KafkaServer id=33] started\n[KafkaServer id=3] stopped\n")
    assert not output.is_serving


def test_http_address_is_read_from_output(output: NodeOutput) -> None:
    assert output.http_url is None
    output.feed(b"INFO ottla HTTP is served url=http://127.0.0.1:40961\n")
    assert output.http_url == "http://127.0.0.1:40961"


def test_active_controller_is_read_from_output(output: NodeOutput) -> None:
    output.feed(b"INFO This node is the active controller epoch=3\n")
    assert output.is_active_controller
    output.feed(b"INFO This node is not the active controller any more epoch=3\n")
    assert not output.is_active_controller


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (b"one\ntwo\n", "two"),
        (b"one\nError: the port is taken.\n\n  \n", "the port is taken."),
        (b"one\nunfinished", "unfinished"),
        (b"\n", "no output."),
    ],
)
def test_last_message_is_the_last_line_with_text(output: NodeOutput, printed: bytes, words: str) -> None:
    output.feed(printed)
    assert output.last_message == words


def test_memory_of_an_endless_line_is_bounded(output: NodeOutput) -> None:
    for _ in range(5):
        output.feed(b"x" * MAX_LINE_BYTES)
    assert len(output.last_message) == MAX_LINE_BYTES
