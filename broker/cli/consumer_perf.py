"""`ottla consumer-perf`: Kafka's kafka-consumer-perf-test, with a member of a classic group."""

import random
import socket
import time

import click

from broker.cli.console.fetcher import ISOLATION, Fetcher, FetchSettings
from broker.cli.console.properties import gather, number
from broker.cli.console.readers import GroupReader, Subscription, member_settings, no_records
from broker.cli.perf.consumption import DETAILS, FETCH_COLUMNS, TOTALS, Consumed, TimeFormat, interval_line, total_line
from broker.cli.perf.options import run_options, warn_of_early_end
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import EARLIEST, LATEST
from broker.cli.shared.progress import ProgressBar
from broker.cli.shared.session import session
from broker.client import Client, ClientConfig, Endpoint, open_socket

CLIENT_ID = "perf-consumer-client"
POLL_MS = 100
GROUP_PREFIX = "perf-consumer-"
GROUPS = 100_000


@click.command("consumer-perf", short_help="Measure the throughput of a consumer.")
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="One or more brokers of the cluster.")
@click.option("--topic", metavar="TOPIC", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Read all matching topics.")
@click.option("--group", metavar="GROUP", help=f"The group. [default: {GROUP_PREFIX} and a random number]")
@click.option(
    "--fetch-size",
    type=click.IntRange(min=1),
    default=1 << 20,
    show_default=True,
    metavar="BYTES",
    help="Bytes of a partition in one fetch.",
)
@click.option("--from-latest", is_flag=True, help="Start at the end where no offset is committed.")
@click.option(
    "--socket-buffer-size",
    type=click.IntRange(min=1),
    default=2 << 20,
    show_default=True,
    metavar="BYTES",
    help="Receive buffer of each connection.",
)
@run_options
def consumer_perf(
    bootstrap_server: str,
    topic: str | None,
    include: str | None,
    records: int,
    group: str | None,
    fetch_size: int,
    from_latest: bool,
    socket_buffer_size: int,
    properties: tuple[str, ...],
    config: str | None,
    show_detailed_stats: bool,
    reporting_interval: int,
    timeout: int,
    times: TimeFormat,
    hide_header: bool,
) -> None:
    """Read records in a group and print the throughput (kafka-consumer-perf-test)."""
    if (topic is None) == (include is None):
        raise click.UsageError("Exactly one of --topic and --include is required.")
    consumer = gather(config, properties, "--command-property")
    if (isolation := consumer.get("isolation.level", "read_uncommitted")) not in ISOLATION:
        raise CommandFailed(f"isolation.level={isolation}: use read_uncommitted or read_committed.")
    name = group or consumer.get("group.id") or f"{GROUP_PREFIX}{random.randrange(GROUPS)}"
    if not hide_header:
        click.echo((DETAILS if show_detailed_stats else TOTALS) + FETCH_COLUMNS)
    settings = FetchSettings(
        reset=LATEST if from_latest else EARLIEST,
        isolation_level=ISOLATION[isolation],
        max_wait_ms=POLL_MS,
        max_bytes=number(consumer, "fetch.max.bytes", 50 << 20),
        partition_max_bytes=fetch_size,
    )

    def opener(endpoint: Endpoint, client: ClientConfig) -> socket.socket:
        opened = open_socket(endpoint, client)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, socket_buffer_size)
        return opened

    subscription = Subscription(topic, include, None, LATEST if from_latest else EARLIEST)
    with session(bootstrap_server, None, {"client.id": CLIENT_ID} | consumer, opener) as client:
        interval_ms = reporting_interval if show_detailed_stats else None
        run = _Consumption(client, settings, interval_ms, times)
        run.join(subscription, name, consumer)
        begun, ended = run.read(records, timeout)
    if ended.records < records:
        warn_of_early_end(timeout)
    if not show_detailed_stats:
        click.echo(total_line(begun, ended, times))


class _Consumption:
    """One run of a consumer; `interval_ms` is the time between two lines, None without them."""

    def __init__(self, client: Client, settings: FetchSettings, interval_ms: int | None, times: TimeFormat) -> None:
        self._client = client
        self._fetcher = Fetcher(client, settings)
        self._interval_ms = interval_ms
        self._times = times
        self._begun = self._former = Consumed(_now_ms(), 0, 0, 0)
        self._reader: GroupReader | None = None
        self._records = self._size = 0

    def join(self, subscription: Subscription, group: str, consumer: dict[str, str]) -> None:
        """Join the group."""
        settings = member_settings(group, consumer)
        self._reader = GroupReader(self._client, self._fetcher, subscription, settings, consumer)

    def read(self, records: int, timeout_ms: int) -> tuple[Consumed, Consumed]:
        """Read until `records` are read or none has arrived for `timeout_ms`; return the begin and the end."""
        assert self._reader is not None
        idle_since_ms = _now_ms()
        try:
            with ProgressBar("records", records) as progress:
                while self._records < records and _now_ms() - idle_since_ms <= timeout_ms:
                    if (read := self._poll(records)) > 0:
                        idle_since_ms = _now_ms()
                        progress.advance(read)
                    self._report()
                    self._reader.keep_alive()
        finally:
            ended = self._now()
            self._reader.close()
        return self._begun, ended

    def _poll(self, records: int) -> int:
        """Read one round of fetches, at most until `records` are read; return the number of new records."""
        before = self._records
        for fetched in self._fetcher.poll() if self._fetcher.positions else no_records():
            self._records += 1
            self._size += len(fetched.record.key or b"") + len(fetched.record.value or b"")
            if self._records == records:
                break
        return self._records - before

    def _report(self) -> None:
        now = self._now()
        if self._interval_ms is not None and now.time_ms - self._former.time_ms >= self._interval_ms:
            click.echo(interval_line(self._former, now, self._times))
            self._former = now

    def _now(self) -> Consumed:
        assert self._reader is not None
        return Consumed(_now_ms(), self._records, self._size, round(self._reader.rebalance_s * 1000))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
