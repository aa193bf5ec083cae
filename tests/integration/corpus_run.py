"""The corpus through every client and codec, at any length: `python -m tests.integration.corpus_run --lines 1000000`.

The command starts a node, or uses a running cluster (`--bootstrap`; then without kills). It prints a line per client
and codec, and `0 bad` at the end.
"""

import argparse
import itertools
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka

from tests.support.clients.client_programs import CODECS, PROGRAMS, ClientProgram, Tally
from tests.support.processes.ottla_node import OttlaNode


@dataclass(frozen=True)
class Outcome:
    """Result of producing and reading the corpus with one client and codec; `bad` must be 0."""

    acknowledged: int
    missing: int
    changed: int
    in_log: int
    produce_s: float
    read_s: float

    def bad(self, expected: int) -> int:
        """Return the number of lines that are missing, changed or duplicated."""
        return self.missing + self.changed + abs(expected - self.acknowledged) + abs(self.in_log - expected)


def text_lines(corpus: Path | None) -> Iterator[bytes]:
    """Yield the lines of the corpus file, by default those of the standard library's source files."""
    paths = [corpus] if corpus is not None else sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    for path in paths:
        with path.open("rb") as text:
            yield from (line.rstrip(b"\r\n").replace(b"\t", b" ") for line in text)


def run_case(node: OttlaNode, program: ClientProgram, topic: str, lines: Sequence[bytes], codec: str) -> Outcome:
    """Produce all lines, with a `kill -9` and restart of the node half way, then read them through a consumer group."""
    started = time.monotonic()
    acknowledged = program.produce(node.bootstrap, topic, _killing_half_way(node, lines), codec)
    produced = time.monotonic()
    tally = program.read(node.bootstrap, topic, f"group-{topic}", len(lines))
    return _outcome(node.bootstrap, topic, lines, acknowledged, tally, produced - started, time.monotonic() - produced)


def _killing_half_way(node: OttlaNode, lines: Sequence[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        if number == len(lines) // 2:
            node.kill()
            node.start()
        yield line


def _outcome(
    bootstrap: str, topic: str, lines: Sequence[bytes], acknowledged: int, tally: Tally, produce_s: float, read_s: float
) -> Outcome:
    missing = sum(number not in tally.lines for number in range(len(lines)))
    different = sum(tally.lines.get(number, line) != line for number, line in enumerate(lines))
    return Outcome(acknowledged, missing, tally.changed + different, records_in(bootstrap, topic), produce_s, read_s)


def records_in(bootstrap: str, topic: str) -> int:
    """Return how many offsets the topic's partitions span between log start and log end offset."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks"})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        ends = (
            consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, p), timeout=30) for p in partitions
        )
        return sum(high - low for low, high in ends)
    finally:
        consumer.close()


def main(arguments: Iterable[str] | None = None) -> int:
    """Run the chosen clients and codecs. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--corpus", type=Path, help="text file; default: the standard library's source files")
    parser.add_argument("--clients", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--codecs", nargs="+", default=list(CODECS), choices=CODECS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    lines = list(itertools.islice(text_lines(options.corpus), options.lines))
    bad = 0
    with tempfile.TemporaryDirectory() as directory, OttlaNode(Path(directory), {"num.partitions": "6"}) as node:
        for client, codec in itertools.product(options.clients, options.codecs):
            outcome = run_case(node, PROGRAMS[client](), f"corpus-{client}-{codec}", lines, codec)
            bad += outcome.bad(len(lines))
            print(
                f"{client:12} {codec:6} lines={len(lines)} acknowledged={outcome.acknowledged} in_log={outcome.in_log} "
                f"missing={outcome.missing} changed={outcome.changed} "
                f"produce_s={outcome.produce_s:.1f} read_s={outcome.read_s:.1f}",
                flush=True,
            )
    print(f"{bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
