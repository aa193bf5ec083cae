"""Failures of a run as printed for the operator."""

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from py4j.protocol import Py4JNetworkError

from broker.cli.shared.failure import CommandFailed
from broker.client import ConnectionLost
from protocol.errors import ErrorCode, KafkaError
from spark_jobs.metadata_snapshots.running import plain_failures
from storage.tiered.errors import StoreUnavailable


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for you."), "not for you."),
        (ConnectionLost("h:1 is away."), "h:1 is away."),
        (StoreUnavailable("s3 is away"), "s3 is away."),
        (Py4JNetworkError("x"), "the JVM of Spark has ended, because it was stopped or ran out of memory."),
        (ConnectionRefusedError(), "the JVM of Spark has ended, because it was stopped or ran out of memory."),
        (ValueError("a\nb"), "ValueError: a (OTTLA_TRACEBACK=1 shows where it happened)"),
    ],
)
def test_failures_are_reported_in_one_sentence(
    error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTTLA_TRACEBACK", raising=False)
    with pytest.raises(CommandFailed) as caught, plain_failures():
        raise error
    assert caught.value.message == sentence


def test_traceback_of_an_unexpected_failure_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TRACEBACK", "1")
    with pytest.raises(ValueError, match=r"^a$"), plain_failures():
        raise ValueError("a")
