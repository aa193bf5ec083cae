"""`make bench`: a report of Ottla against Apache Kafka, both measured in this run, with the same clients.

Runs of both brokers alternate; the first of each is discarded, and medians count. On a slow host, workloads that take
long run fewer times, so that a whole run ends within 90 minutes. Clients: librdkafka (kcat if it is
installed, otherwise confluent-kafka), Apache Kafka's performance tools, franz-go, and for latency and start the minimal
client in `wire.py`. Writes `build/bench/report.md`, `report.json` and `details.json` after each group;
`python -m tests.benchmarks.report` makes `docs/benchmarks.md` of the details.
"""

import argparse
import sys
import time
import traceback
from dataclasses import replace

from tests.benchmarks.groups import GROUPS, RUNS, Ask, share_of_runs
from tests.benchmarks.report.files import GroupResult, Report, write
from tests.benchmarks.report.machine import facts, touch_memory
from tests.benchmarks.report.rows import Row
from tests.benchmarks.sides import kafka_unavailable


def run(ask: Ask) -> Report:
    """Measure all groups of `ask`, and write the files after each; a group that fails does not end the run."""
    if (reason := kafka_unavailable()) is not None:
        print(f"skipped: Apache Kafka: {reason}")
    if not ask.only:
        print(f"touched {touch_memory():.1f} GB of memory", flush=True)
    report = Report(facts(_kind(ask)), [])
    groups = [group for group in GROUPS if group.is_quick or not ask.quick]
    began = time.monotonic()
    for number, group in enumerate(groups):
        started, failure = time.monotonic(), ""
        share = 1.0 if ask.only else share_of_runs(started - began, groups[:number], groups[number:])
        rows: list[Row] = []
        try:
            for row in group.measure(replace(ask, share=share)):
                rows.append(row)  # noqa: PERF402  # a failure keeps the rows before it
        except Exception as error:  # noqa: BLE001  # the other groups take an hour
            traceback.print_exc()
            failure = f"{type(error).__name__}: {error}".splitlines()[0]
        if rows or failure:
            report.groups.append(GroupResult(group.name, rows, time.monotonic() - started, failure))
            write(report)
    return report


def _kind(ask: Ask) -> str:
    kind = "quick: one counted run, fewer records and groups" if ask.quick else "whole"
    return f"{kind}, only rows with {ask.only!r}" if ask.only else kind


def main() -> int:
    """Parse the command line, measure and report; return the exit code, 1 if a group failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, help=f"counted runs per side ({RUNS}, fewer of what takes minutes)")
    parser.add_argument("--only", default="", help="only figures whose name contains this")
    parser.add_argument("--quick", action="store_true", help="one counted run, fewer records and groups: ten minutes")
    options = parser.parse_args()
    report = run(Ask(options.only, options.runs, options.quick))
    print(write(report))
    return int(any(group.failure for group in report.groups))


if __name__ == "__main__":
    sys.exit(main())
