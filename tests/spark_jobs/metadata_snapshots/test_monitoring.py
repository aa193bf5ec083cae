"""Health and metrics of a tailing job: reasons for not being ready, the lag, and the HTTP listener."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.shared.failure import CommandFailed
from broker.client import ConnectionLost
from spark_jobs.metadata_snapshots.__main__ import run
from spark_jobs.metadata_snapshots.monitoring import HttpListener, ListenAt, WatermarkWatch, listening
from spark_jobs.metadata_snapshots.progress import AWAY_AFTER_S, JobProgress
from spark_jobs.metadata_source.metadata_log import CommittedBounds


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def following(clock: Clock, *, stalled_after_s: float = 60.0) -> JobProgress:
    """Return the progress of a job that has folded up to offset 10, the high watermark."""
    progress = JobProgress(stalled_after_s, clock)
    progress.begins(10)
    progress.saw_high_watermark(10)
    return progress


def values(progress: JobProgress) -> dict[str, float]:
    return {family.name: sample.value for family in progress.families() for sample in family.read()}


def test_job_is_not_ready_before_it_folds_and_knows_the_high_watermark() -> None:
    progress = JobProgress(60.0, Clock())
    assert progress.not_ready_because() == "the job is starting"
    progress.begins(10)
    assert progress.not_ready_because() == "the high watermark is not known yet"
    assert "ottla_metadata_job_lag_records" not in values(progress)
    progress.saw_high_watermark(10)
    assert progress.not_ready_because() is None


def test_lag_grows_while_the_job_completes_no_step() -> None:
    clock = Clock()
    progress = following(clock)
    clock.now += 30
    progress.saw_high_watermark(15)
    clock.now += 5
    found = values(progress)
    assert found["ottla_metadata_job_folded_end_offset"] == 10
    assert found["ottla_metadata_job_high_watermark"] == 15
    assert found["ottla_metadata_job_lag_records"] == 5
    assert found["ottla_metadata_job_seconds_since_high_watermark"] == 5
    progress.saw_high_watermark(40)
    assert progress.lag == 30


def test_job_behind_without_a_step_is_not_ready_until_a_step_completes() -> None:
    clock = Clock()
    progress = following(clock)
    for _ in range(61):
        clock.now += 1
        progress.saw_high_watermark(12)
    assert progress.not_ready_because() is None
    clock.now += 1
    assert progress.not_ready_because() == "the fold has stayed 2 records behind the high watermark for 61 s"
    progress.stepped(11)
    assert progress.not_ready_because() is None, "the fold advances, although it is behind"


def test_repeated_step_without_progress_does_not_hide_a_stall() -> None:
    clock = Clock()
    progress = following(clock)
    for _ in range(62):
        clock.now += 1
        progress.saw_high_watermark(12)
        progress.stepped(10)
    assert progress.not_ready_because() is not None


def test_idle_cluster_leaves_the_job_ready() -> None:
    clock = Clock()
    progress = following(clock)
    for _ in range(1_000):
        clock.now += 5
        progress.saw_high_watermark(10)
    assert progress.not_ready_because() is None
    progress.saw_high_watermark(11)
    assert progress.not_ready_because() is None, "the stall begins with the first record that is not folded"


def test_job_is_not_ready_while_brokers_are_away() -> None:
    clock = Clock()
    progress = following(clock)
    clock.now += AWAY_AFTER_S + 1
    progress.missed_high_watermark("h:1 is away.")
    assert progress.not_ready_because() == "the brokers have not told the high watermark for 11 s: h:1 is away."
    assert values(progress)["ottla_metadata_job_ready"] == 0
    progress.saw_high_watermark(10)
    assert progress.not_ready_because() is None


def test_stall_does_not_include_an_outage_of_the_brokers() -> None:
    clock = Clock()
    progress = following(clock)
    progress.saw_high_watermark(12)
    clock.now += 3_600
    progress.saw_high_watermark(13)
    assert progress.not_ready_because() is None
    for _ in range(61):
        clock.now += 1
        progress.saw_high_watermark(13)
    assert progress.not_ready_because() == "the fold has stayed 3 records behind the high watermark for 61 s"


def test_last_error_is_shown_until_a_step_succeeds() -> None:
    progress = following(Clock())
    progress.retried("s3 is away.")
    errors = [dict(sample.labels) for family in progress.families() for sample in family.read() if sample.labels]
    assert errors == [{"error": "s3 is away."}]
    progress.stepped(11)
    found = values(progress)
    assert "ottla_metadata_job_last_error_info" not in found
    assert (found["ottla_metadata_job_retries_total"], progress.last_error) == (1, None)


@contextlib.contextmanager
def served(progress: JobProgress) -> Iterator[tuple[str, int]]:
    with contextlib.closing(HttpListener(progress, "127.0.0.1", 0)) as listener:
        yield listener.address


def get(address: tuple[str, int], path: str, method: str = "GET") -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection(*address, timeout=30)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()


def test_listener_answers_health_and_metrics() -> None:
    clock = Clock()
    progress = following(clock)
    progress.wrote_snapshot()
    with served(progress) as address:
        assert get(address, "/health/live") == (200, b'{"status": "live"}\n')
        status, body = get(address, "/health/ready")
        facts = {"folded_end_offset": 10, "high_watermark": 10, "lag": 0, "last_error": None}
        assert (status, json.loads(body)) == (200, {"status": "ready"} | facts)
        status, page = get(address, "/metrics")
        assert status == 200
        assert b"ottla_metadata_job_snapshots_written_total 1.0\n" in page
        assert b"# TYPE ottla_metadata_job_lag_records gauge\n" in page
        clock.now += AWAY_AFTER_S + 1
        status, body = get(address, "/health/ready")
        assert (status, json.loads(body)["status"]) == (503, "not ready")
        assert get(address, "/health/live")[0] == 200
        assert get(address, "/elsewhere")[0] == 404
        assert get(address, "/metrics", "HEAD") == (200, b"")
        assert get(address, "/metrics", "POST")[0] == 501


class Log:
    """A log whose brokers are away at every second look."""

    def __init__(self) -> None:
        self.looks = 0
        self.has_looked = threading.Semaphore(0)
        self.is_closed = threading.Event()

    def bounds(self) -> CommittedBounds:
        self.looks += 1
        self.has_looked.release()
        if self.looks % 2 == 0:
            raise ConnectionLost("h:1 is away.")
        return CommittedBounds(0, 10 * self.looks)

    def close(self) -> None:
        self.is_closed.set()


def test_watch_survives_unavailable_brokers_and_closes_its_client() -> None:
    progress, log = JobProgress(), Log()
    progress.begins(0)
    watch = WatermarkWatch(progress, lambda: log, pause_s=0.001)
    for _ in range(4):
        assert log.has_looked.acquire(timeout=30)
    assert progress.high_watermark is not None
    assert progress.high_watermark >= 30
    watch.close()
    assert log.is_closed.wait(30)


def test_used_address_is_reported() -> None:
    with served(JobProgress()) as (host, port):
        with pytest.raises(CommandFailed) as caught, listening(JobProgress(), ListenAt(host, port), Log):
            pass
        assert caught.value.message == f"--http: cannot listen on {host}:{port}: Address already in use."


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--http", "9645"], "--http must be HOST:PORT, not '9645'."),
        (["--http", "h:70000"], "--http must be HOST:PORT, not 'h:70000'."),
        (["--http", "h:1", "--once"], "--http cannot be combined with --once or --at."),
    ],
)
def test_wrong_http_address_is_a_usage_error(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--bootstrap-server", "h:1", "--out", str(tmp_path), *arguments]) == 2
    assert sentence in capsys.readouterr().err
