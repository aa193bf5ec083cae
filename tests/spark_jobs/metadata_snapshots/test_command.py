"""The schedule of snapshots, the sentences of failures, and the checks of the command before Spark starts."""

import signal
from pathlib import Path

import pytest

from protocol.ids import LeaderEpoch
from spark_jobs.metadata.frame_heads import UnknownRecord
from spark_jobs.metadata_snapshots.__main__ import run
from spark_jobs.metadata_snapshots.commits import Commit, Since
from spark_jobs.metadata_snapshots.failures import failure_of
from spark_jobs.metadata_snapshots.schedule import Schedule
from spark_jobs.metadata_snapshots.signals import Interrupted, stopped_by_signals
from spark_jobs.metadata_snapshots.state_store import StateStore
from storage.tiered.loading.store_uri import StoreUri
from tests.support.fakes.served_metadata_log import ServedMetadataLog


def commit(records: int, size: int, changed: int, *, open_since: int = -1) -> Commit:
    since = Since(size, changed)
    return Commit(
        cluster_id="x",
        end=5,
        epoch=LeaderEpoch(1),
        timestamp_ms=0,
        open_since=open_since,
        snapshot_records=records,
        since=since,
    )


@pytest.mark.parametrize(
    ("records", "size", "changed", "is_due"),
    [(-1, 99, 0, False), (-1, 100, 0, True), (10, 100, 4, False), (10, 100, 5, True), (10, 99, 10, False)],
)
def test_snapshot_is_due_by_bytes_and_ratio_as_in_kip_630(records: int, size: int, changed: int, is_due: bool) -> None:
    schedule = Schedule.by_conditions(0.5, 100)
    assert schedule.is_due(commit(records, size, changed), 0) is is_due


def test_schedule_by_time_requires_new_records() -> None:
    schedule = Schedule.by_time(2)
    assert schedule.is_due(commit(10, 1, 0), 2000)
    assert not schedule.is_due(commit(10, 1, 0), 1999)
    assert not schedule.is_due(commit(10, 0, 0), 9999)
    assert Schedule.by_conditions().is_due(commit(10, 1, 0), 3_600_000)


def test_no_snapshot_is_due_within_a_transaction() -> None:
    assert not Schedule.by_time(1).is_due(commit(1, 1, 1, open_since=5), 9999)


TRACE = """[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure
pyspark.errors.exceptions.base.PySparkException: Traceback (most recent call last):
  File "x.py", line 3, in read
    raise LogTrimmed(offset, name)
{line}
\tat org.apache.spark.Something(Unknown Source)"""


@pytest.mark.parametrize(
    ("line", "kind", "sentence", "is_retriable"),
    [
        ("spark_jobs.a.LogTrimmed: trimmed", "LogTrimmed", "trimmed.", True),
        ("broker.client.ConnectionLost: h:1 is away.", "ConnectionLost", "h:1 is away.", True),
        ("protocol.errors.KafkaError: BROKER_NOT_AVAILABLE: none.", "KafkaError", "none.", True),
        ("protocol.errors.KafkaError: NOT_CONTROLLER: not yet.", "KafkaError", "not yet.", True),
        ("protocol.errors.KafkaError: TOPIC_AUTHORIZATION_FAILED: no.", "KafkaError", "no.", False),
        ("spark_jobs.b.SourceRefused: never.", "SourceRefused", "never.", False),
    ],
)
def test_cause_is_parsed_from_traceback_texts(line: str, kind: str, sentence: str, is_retriable: bool) -> None:
    assert failure_of(RuntimeError(TRACE.format(line=line))) == (kind, sentence, is_retriable)


def test_unknown_record_is_reported_with_the_way_out() -> None:
    line = f"x.UnknownRecord: {UnknownRecord(5, 99, 0)}"
    failure = failure_of(RuntimeError(TRACE.format(line=line)))
    assert failure is not None
    assert failure.sentence == f"{UnknownRecord(5, 99, 0)}."
    assert "upgrade Ottla" in failure.sentence
    assert not failure.is_retriable


def test_full_disk_of_spark_is_reported_and_transient() -> None:
    failure = failure_of(RuntimeError("[STREAM_FAILED] Query terminated: java.io.IOException: No space left on device"))
    assert failure is not None
    assert failure.is_retriable
    assert "SPARK_LOCAL_DIRS" in failure.sentence


def test_unexpected_failure_has_no_sentence() -> None:
    assert failure_of(ValueError("x")) is None


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--bootstrap-server", "h:1"],
        ["--bootstrap-server", "h:1", "--out", "x", "--once", "--at", "5"],
        ["--bootstrap-server", "h:1", "--out", "x", "--at", "0"],
        ["--bootstrap-server", "h:1", "--out", "x", "--at", str(1 << 63)],
        ["--bootstrap-server", "h:1", "--out", "x", "--at", "5", "--tables", "y"],
        ["--bootstrap-server", "h:1", "--out", "x", "--interval", "0"],
    ],
)
def test_wrong_usage_exits_with_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--out", "ftp://x/y", "--out: ftp:// is no object store"),
        ("--tables", "s3://", "--tables: s3:/// does not name a bucket"),
        ("--client-config", "/nowhere.properties", "cannot read /nowhere.properties: No such file or directory."),
    ],
)
def test_wrong_options_are_reported_before_spark_starts(
    option: str, value: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"--bootstrap-server": "h:1", "--out": str(tmp_path), option: value}
    assert run([part for pair in given.items() for part in pair]) == 1
    assert f"Error: {sentence}" in capsys.readouterr().err


def test_unusable_location_is_reported_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A state of another cluster, and one of a later version of this program."""
    with ServedMetadataLog([], cluster_id="theirs") as served:
        given = ["--bootstrap-server", served.address, "--out", str(tmp_path), "--once"]
        store = StateStore(StoreUri(directory=str(tmp_path)))
        store.write_commit(mine := commit(1, 1, 1))
        assert run(given) == 1
        content = mine.to_json().replace(b'"version": 1', b'"version": 2')
        store.put(mine.name, [content])
        assert run(given) == 1
        assert store.read(mine.name) == content
    foreign, later = capsys.readouterr().err.splitlines()
    assert foreign == f"Error: {tmp_path} belongs to cluster x, but the brokers belong to theirs; use another --out."
    assert later.startswith(
        "Error: a commit has version 2, but this program supports version 1. Remove _state in --out, "
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "security.protocol=SASL_SSL",
            "sasl.mechanism=GSSAPI is not implemented; use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        ),
        ("request.timeout.ms=soon", "request.timeout.ms=soon is not a positive number."),
        ("fetch.max.wait.ms=0", "kafka.fetch.max.wait.ms must be a positive number, not '0'."),
    ],
)
def test_invalid_client_properties_are_reported(
    line: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{line}\nacks=all\nclient.id=job\nsasl.jaas.config=sesame\n")
    given = ["--bootstrap-server", "127.0.0.1:1", "--out", str(tmp_path), "--client-config", str(file)]
    assert run(given) == 1
    errors = capsys.readouterr().err.splitlines()
    assert errors == [
        f"Warning: {file}: these properties have no effect: acks.",
        f"Error: {sentence}",
    ]


class Running:
    """A job for the signal handlers."""

    def __init__(self, *, is_tailing: bool) -> None:
        self.is_tailing = is_tailing
        self.is_stopping = False

    def stop(self) -> None:
        self.is_stopping = True


def test_tail_stops_in_order_and_at_once_on_a_second_signal() -> None:
    job = Running(is_tailing=True)
    with stopped_by_signals(job):
        signal.raise_signal(signal.SIGINT)
        assert job.is_stopping
        with pytest.raises(Interrupted) as interrupted:
            signal.raise_signal(signal.SIGTERM)
    assert interrupted.value.exit_code == 143


def test_signal_ends_a_bounded_run_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted) as interrupted, stopped_by_signals(Running(is_tailing=False)):
        signal.raise_signal(signal.SIGINT)
    assert (interrupted.value.exit_code, signal.getsignal(signal.SIGINT)) == (130, before)
