"""`ottla share-consumer-perf`: Kafka's kafka-share-consumer-perf-test, with one consumer."""

import time
from typing import NamedTuple

import click

from broker.cli.console.properties import gather
from broker.cli.perf.consumption import BYTES_PER_MB, TimeFormat
from broker.cli.perf.options import run_options, warn_of_early_end
from broker.cli.share.consumer import ACCEPT, ShareConsumer
from broker.cli.shared.progress import ProgressBar
from broker.cli.shared.session import session

CLIENT_ID = "perf-share-consumer-client"
DEFAULT_GROUP = "perf-share-consumer"
POLL_MS = 100
HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"


class _Totals(NamedTuple):
    time_ms: int
    records: int
    size: int


@click.command("share-consumer-perf", short_help="Measure the throughput of a consumer of a share group.")
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="One or more brokers of the cluster.")
@click.option("--topic", required=True, metavar="TOPIC", help="The topic to read.")
@click.option("--group", default=DEFAULT_GROUP, show_default=True, metavar="GROUP", help="The share group.")
@run_options
def share_consumer_perf(
    bootstrap_server: str,
    topic: str,
    records: int,
    group: str,
    properties: tuple[str, ...],
    config: str | None,
    show_detailed_stats: bool,
    reporting_interval: int,
    timeout: int,
    times: TimeFormat,
    hide_header: bool,
) -> None:
    """Read records in a share group and print the throughput (kafka-share-consumer-perf-test)."""
    consumer = gather(config, properties, "--command-property")
    if not hide_header:
        click.echo(HEADER)
    with session(bootstrap_server, None, {"client.id": CLIENT_ID} | consumer) as client:
        share_consumer = ShareConsumer(client, consumer.get("group.id", group), topic, POLL_MS)
        begun = ended = _Totals(_now_ms(), 0, 0)
        former, idle_since_ms = begun, begun.time_ms
        with ProgressBar("records", records) as progress:
            while ended.records < records and _now_ms() - idle_since_ms <= timeout:
                before, ended = ended, _poll(share_consumer, ended)
                if ended.records > before.records:
                    idle_since_ms = ended.time_ms
                    progress.advance(ended.records - before.records)
                if show_detailed_stats and ended.time_ms - former.time_ms >= reporting_interval:
                    click.echo(_line(former, ended, times))
                    former = ended
        share_consumer.close()
    if ended.records < records:
        warn_of_early_end(timeout)
    click.echo(_line(begun, ended._replace(time_ms=_now_ms()), times))


def _poll(consumer: ShareConsumer, before: _Totals) -> _Totals:
    records, size = before.records, before.size
    for found in consumer.poll():
        records += 1
        size += len(found.record.key or b"") + len(found.record.value or b"")
        consumer.acknowledge(found, ACCEPT)
    return _Totals(_now_ms(), records, size)


def _line(former: _Totals, now: _Totals, times: TimeFormat) -> str:
    elapsed_ms = now.time_ms - former.time_ms
    per_s = 1000 / max(1, elapsed_ms)
    megabytes = (now.size - former.size) / BYTES_PER_MB
    return (
        f"{times.format(former.time_ms)}, {times.format(now.time_ms)}, {megabytes:.4f}, {megabytes * per_s:.4f},"
        f" {(now.records - former.records) * per_s:.4f}, {now.records - former.records}, {elapsed_ms}"
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
