"""Use of an S3 server by a node: uploads, and catch-up reads with all prefetching, each against boto3 alone on the same
server in the same run.

Everything runs on this machine, so broker, client and server share its processors; boto3 alone competes with neither
broker nor client.
"""

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config
from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.tiered.catch_up import RECORD_BYTES, SEGMENT_BYTES, THREADS, Span, drain, in_parallel
from tests.benchmarks.tiered.cluster import (
    EARLIEST_LOCAL,
    LATEST_TIERED,
    alter_topic,
    await_shrunk,
    offsets,
    s3_settings,
    tiered,
)
from tests.benchmarks.tiered.relay import relay
from tests.benchmarks.wire import Wire, fetch_frame, fetched_bytes
from tests.benchmarks.workloads import HIGHER, fill
from tests.support.processes.ottla_node import OttlaNode
from tests.support.processes.s3_server import BUCKET, S3Server

PARTITIONS: Final = 4
PIECE_BYTES: Final = 1024 * 1024
PATIENCE_S: Final = 120.0
POLL_S: Final = 0.005

UPLOAD, UPLOAD_ALONE = "copier to S3", "copier to S3: boto3 put alone, 4 threads"
UPLOAD_SHARE = "copier to S3, of what boto3 alone does"
READ_ALONE = "catch-up from S3: boto3 get alone, 4 threads"
READ_SHARE = "catch-up from S3, of what boto3 alone does"
RELAY = "catch-up from S3: boto3 get and a socket to another process, 4 threads"
RELAY_SHARE = "catch-up from S3, of what such a relay does"

_CACHE = "rsm.config.fetch.chunk.cache."
VARIANTS: Final[Mapping[str, Mapping[str, str]]] = {
    "": {},
    ", no chunk cache": {f"{_CACHE}class": "none"},
    ", chunk cache on disk": {f"{_CACHE}class": "disk"},
    ", no prefetch": {f"{_CACHE}prefetch.max.size": "0"},
}
"""Settings of the node by variant; the first has the defaults."""
READERS: Final[Mapping[str, int]] = {"4 partitions": PARTITIONS, "1 partition": 1}

Row = tuple[str, float | None, float | None, str, str]


def names() -> list[str]:
    """Return the names of all rows of `measure`."""
    reads = [_read_name(readers, variant) for readers in READERS for variant in VARIANTS]
    return [UPLOAD, UPLOAD_ALONE, UPLOAD_SHARE, *reads, READ_ALONE, READ_SHARE, RELAY, RELAY_SHARE]


def _read_name(readers: str, variant: str) -> str:
    return f"catch-up from S3, {readers}{variant}"


def measure(directory: Path, megabytes: int, only: str, runs: int) -> list[Row]:
    """Measure all rows with `only` in their names. `megabytes` are produced and read."""
    wanted = [name for name in names() if only in name]
    if not wanted:
        return []
    with S3Server(directory / "s3") as server:
        bench = StoreBenchmark(directory / "node", server, megabytes)
        rows = bench.uploads()
        if any("catch-up" in name for name in wanted):
            rows += bench.reads(wanted, runs)
    return [row for row in rows if row[0] in wanted]


class StoreBenchmark:
    """One node and one topic, first local only."""

    def __init__(self, directory: Path, server: S3Server, megabytes: int) -> None:
        self._server = server
        self._directory = directory
        self._records = megabytes * 1_000_000 // RECORD_BYTES
        self._topic = f"catch-up-{uuid.uuid4().hex}"
        self._node = OttlaNode(directory, self._settings({}))

    def _settings(self, variant: Mapping[str, str]) -> dict[str, str]:
        return {**s3_settings(self._server), "remote.log.manager.task.interval.ms": "100", **variant}

    @property
    def client(self) -> Any:
        """Return a boto3 client, with its defaults as far as the server allows."""
        return boto3.client(
            "s3",
            endpoint_url=self._server.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self._server.access_key_id,
            aws_secret_access_key=self._server.secret_access_key,
            config=Config(s3={"addressing_style": "path"}, max_pool_connections=THREADS),
        )

    # ---- uploads

    def uploads(self) -> list[Row]:
        """Fill the topic; measure boto3 alone on its closed segments, then the copier; stop the node."""
        with self._node as node:
            self._warm_up(node.bootstrap)
            self._create_topic(node.bootstrap, self._topic, PARTITIONS)
            fill(node.bootstrap, self._topic, RECORD_BYTES, self._records)
            closed = self._closed_segments(self._topic)
            megabytes = sum(path.stat().st_size for path in closed) / 1e6
            alone = megabytes / self._put_alone(closed)
            copier = megabytes / self._copy(node.bootstrap, self._topic, len(closed))
            await_shrunk(node.bootstrap, self._topic, PARTITIONS, 2 * SEGMENT_BYTES // RECORD_BYTES)
        return [
            (UPLOAD, copier, None, "MB/s", HIGHER),
            (UPLOAD_ALONE, alone, None, "MB/s", HIGHER),
            (UPLOAD_SHARE, 100 * copier / alone, None, "%", HIGHER),
        ]

    def _warm_up(self, bootstrap: str) -> None:
        """Copy a first segment, which creates the metadata topic and connects to the server."""
        topic = "warm-up"
        self._create_topic(bootstrap, topic, 1)
        fill(bootstrap, topic, RECORD_BYTES, 2 * SEGMENT_BYTES // RECORD_BYTES)
        self._copy(bootstrap, topic, len(self._closed_segments(topic)))

    def _create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Create the topic, without copies."""
        config = {**tiered(SEGMENT_BYTES), "remote.log.copy.disable": "true"}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)

    def _copy(self, bootstrap: str, topic: str, segments: int) -> float:
        """Return the seconds from enabling copies until all segments are copied."""
        local = {"local.retention.bytes": str(SEGMENT_BYTES)}
        started = time.monotonic()
        alter_topic(bootstrap, topic, {"remote.log.copy.disable": "false", **local})
        _until(lambda: self._count_manifests(topic) >= segments, f"{segments} segments were not copied")
        return time.monotonic() - started

    def _closed_segments(self, topic: str) -> list[Path]:
        found = []
        for directory in (self._directory / "data").glob(f"{topic}-*"):
            found += sorted(directory.glob("*.log"))[:-1]
        return found

    def _count_manifests(self, topic: str) -> int:
        return len(list(self._server.objects.glob(f"{topic}-*/*/*.rsm-manifest")))

    def _put_alone(self, files: Sequence[Path]) -> float:
        client = self.client

        def put(path: Path) -> None:
            with path.open("rb") as body:
                client.put_object(Bucket=BUCKET, Key=f"alone/{path.parent.name}/{path.name}", Body=body)

        client.list_objects_v2(Bucket=BUCKET, MaxKeys=1)  # connects
        started = time.monotonic()
        in_parallel(put, files)
        took = time.monotonic() - started
        shutil.rmtree(self._server.objects / "alone")
        return took

    # ---- reads

    def reads(self, wanted: Sequence[str], runs: int) -> list[Row]:
        """Measure each variant and run with a new node; the best run counts, since other load only slows."""
        alone = max(self._get_alone() for _ in range(runs))
        relayed = max(self._get_and_relay() for _ in range(runs))
        rows: list[Row] = [(READ_ALONE, alone, None, "MB/s", HIGHER)]
        shares = {READ_SHARE, RELAY_SHARE}
        for readers, partitions in READERS.items():
            for variant, settings in VARIANTS.items():
                name = _read_name(readers, variant)
                if name in wanted or (shares & set(wanted) and not rows[1:]):
                    best = max(self._catch_up(settings, partitions) for _ in range(runs))
                    rows.append((name, best, None, "MB/s", HIGHER))
                    print(f"{name}: {best:.0f} MB/s; boto3 alone {alone:.0f}", flush=True)
        if rows[1:] and rows[1][0] == _read_name("4 partitions", ""):
            assert rows[1][1] is not None
            rows.append((READ_SHARE, 100 * rows[1][1] / alone, None, "%", HIGHER))
            rows.append((RELAY_SHARE, 100 * rows[1][1] / relayed, None, "%", HIGHER))
        return [*rows, (RELAY, relayed, None, "MB/s", HIGHER)]

    def _get_alone(self) -> float:
        """Return MB/s of boto3 for all logs of the topic, one request each."""
        return self._get(lambda pieces: sum(map(len, pieces)))

    def _get_and_relay(self) -> float:
        """Return MB/s of boto3 where each piece is sent over a socket to another process."""
        with relay(THREADS) as send:
            return self._get(send)

    def _get(self, consume: Callable[[Iterator[bytes]], int]) -> float:
        """Return MB/s of boto3 for all logs of the topic, one request each; `consume` returns the size of a body."""
        client = self.client
        keys = [
            each["Key"]
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=self._topic)
            for each in page["Contents"]
            if each["Key"].endswith(".log")
        ]

        def get(key: str) -> int:
            body = client.get_object(Bucket=BUCKET, Key=key)["Body"]
            return consume(iter(lambda: body.read(PIECE_BYTES), b""))

        started = time.monotonic()
        read: int = sum(in_parallel(get, keys))
        return read / 1e6 / (time.monotonic() - started)

    def _catch_up(self, variant: Mapping[str, str], partitions: int) -> float:
        """Return MB/s from the first offsets to the local log. The start of clients and the node's first connection to
        the server do not count.
        """
        with self._restarted(variant) as bootstrap:
            ends = self._remote_ends(bootstrap, partitions)
            _touch(bootstrap, self._topic)
            overhead_s = drain(bootstrap, [Span(self._topic, number, end, 1) for number, end in ends.items()])
            took = drain(bootstrap, [Span(self._topic, number, 0, end) for number, end in ends.items()]) - overhead_s
        return sum(ends.values()) * RECORD_BYTES / 1e6 / took

    @contextlib.contextmanager
    def _restarted(self, variant: Mapping[str, str]) -> Iterator[str]:
        self._node.settings = self._settings(variant)
        with self._node as node:
            yield node.bootstrap

    def _remote_ends(self, bootstrap: str, partitions: int) -> dict[int, int]:
        _until(
            lambda: sum(end >= 0 for end in offsets(bootstrap, self._topic, LATEST_TIERED).values()) == PARTITIONS,
            "the node has not loaded the remote metadata",
        )
        ends = offsets(bootstrap, self._topic, EARLIEST_LOCAL)
        return {number: ends[number] for number in range(partitions)}


def _touch(bootstrap: str, topic: str) -> None:
    """Let the node read some remote records."""
    with Wire(bootstrap) as wire:
        while True:
            wire.send(fetch_frame(topic, 0, max_bytes=1))
            if fetched_bytes(wire.answer()):
                return


def _until(is_so: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, complaint
        time.sleep(POLL_S)
