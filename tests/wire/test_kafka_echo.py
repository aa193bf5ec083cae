"""Kafka's own classes and Ottla's encode the same bytes, for every message of the protocol and of the logs."""

import pytest

from protocol import compiler
from tests.support.kafka import apache_kafka
from tests.wire.kafka_echo import GOLDEN, echo, kafka_versions, sample_lines

NEWER_THAN_THE_JARS = ("ClassNotFoundException", "Can't read version")
"""Errors of an older release for messages or versions that it lacks."""

LINES = GOLDEN.read_text().splitlines()


def test_every_message_and_version_has_a_line() -> None:
    assert [line.rpartition(" ")[0] for line in LINES] == [f"{cls.__name__} {v}" for cls, v in kafka_versions()]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.rpartition(" ")[0])
def test_bytes_written_by_kafka_round_trip(line: str) -> None:
    name, version, text = line.split(" ")
    written = bytes.fromhex(text)
    message, end = compiler.decode(compiler.class_named(name), written, int(version))
    assert end == len(written)
    assert compiler.encode_bytes(message, int(version)) == written


@pytest.mark.interop
def test_bytes_written_by_ottla_round_trip_through_kafka() -> None:
    reason = apache_kafka.unavailable_reason()
    if reason:
        pytest.skip(reason)
    for seed in range(1, 4):
        ours = sample_lines(seed)
        for line, theirs in zip(ours, echo(ours, apache_kafka.JARS), strict=True):
            if not any(reason in theirs for reason in NEWER_THAN_THE_JARS):
                assert theirs == line
