"""Chaos run: random faults on a three-node cluster under load, followed by a check of every record.

`python -m tests.chaos --minutes 10` (`make chaos`) uses replication factor 3, min.insync.replicas 2, acks=all, and
idempotent producers and consumers of librdkafka, Java and franz-go. Every few seconds a random node is killed with -9,
paused, restarted, partitioned in one or both directions, cut off from one other broker alone, or cut off from the
controllers alone while clients, followers and the store still reach it. In the last quarter one node is dead for good,
and the others are killed, paused and restarted. The report counts each anomaly, in Jepsen's terms, and the
gaps in availability. The exit code is 0 only without anomalies and errors, and with enough records and faults.

`--acks 1 --unclean` permits losses: acks=1 without retries, and unclean elections. The checker then permits suffixes
that a leader of a later epoch truncated; consumers must have detected every truncation of records they had read.
Without idempotence it permits duplicates too: librdkafka may resend an unanswered request even with retries=0.
`--strict` counts all of these as anomalies, which shows that the checker finds them. `--make apache` runs three nodes
of Apache Kafka instead.

Further topics are tiered to a real S3 server that fails, is down for up to a minute, hangs, or is unreachable for a
node, independently of the node faults. One topic has no retention, one is bounded by retention and DeleteRecords, and
one is written with acks=1. Their guarantees are the same in every mode, and have their own checkers: `tiered-...`.
Without Go the store is a directory, which does not fail. `--no-tiered` leaves these topics out.

`--secure` runs the same under TLS, SCRAM and ACLs, with mTLS between controllers.
"""

import argparse
import contextlib
import random
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.chaos import network
from tests.chaos.checker import Rules
from tests.chaos.faults import DEAD, REQUIRED, Faults
from tests.chaos.nodes import ChaosCluster
from tests.chaos.programs import PROGRAMS
from tests.chaos.report import Results, report
from tests.chaos.run import Run
from tests.chaos.security import Security
from tests.chaos.tier import TOPICS, Tier, loads
from tests.chaos.tier_run import TierRun
from tests.chaos.timeline import Timeline
from tests.chaos.topic import Load, RunFailed, TopicRun
from tests.support.kafka.apache_kafka import REPOSITORY, unavailable_reason
from tests.support.kafka.kraft_nodes import Make
from tests.support.processes import s3_server
from tests.support.processes.client_programs import ClientLibrary

RATE_MAX_BYTES = 5_000_000
NODES = 3
LONG_RUN_MINUTES = 8
BUILD = REPOSITORY / "build" / "chaos"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--make", type=Make, choices=list(Make), default=Make.OTTLA)
    parser.add_argument("--acks", choices=("all", "1"), default="all")
    parser.add_argument("--unclean", action="store_true", help="permit unclean elections, and provoke some")
    parser.add_argument(
        "--strict", action="store_true", help="count every loss as an anomaly, whatever the settings permit"
    )
    parser.add_argument(
        "--clients", default=",".join(ClientLibrary), help="comma-separated subset of " + ",".join(ClientLibrary)
    )
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=int, default=1200, help="records per second of each producer")
    parser.add_argument("--size", type=int, default=200, help="bytes per record")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--min-acknowledged", type=int, help="minimum of acknowledged records (100,000 per minute)")
    parser.add_argument("--min-faults", type=int, help="minimum of faults (6 per minute)")
    parser.add_argument(
        "--max-gap", type=float, default=30, help="maximum seconds in which a partition acknowledges no record"
    )
    parser.add_argument(
        "--secure", action="store_true", help="use TLS, SCRAM logins and ACLs; mTLS between controllers"
    )
    parser.add_argument("--no-tiered", dest="tiered", action="store_false", help="use only the topic on local disks")
    parser.add_argument(
        "--directory", type=Path, help="directory of the nodes' files, emptied first (build/chaos/MAKE-SEED)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the nodes' files even after a clean run")
    arguments = parser.parse_args()
    arguments.tiered = arguments.tiered and arguments.make is Make.OTTLA
    arguments.directory = arguments.directory or BUILD / f"{arguments.make}-{arguments.seed}"
    if arguments.rate * arguments.size > RATE_MAX_BYTES:
        parser.error(
            f"{arguments.rate} records of {arguments.size} bytes per second are more than {RATE_MAX_BYTES} bytes"
        )
    return arguments


def main() -> int:
    arguments = parsed()
    if not network.entered():
        for client in map(ClientLibrary, arguments.clients.split(",")):
            PROGRAMS.refusal(client)  # downloads and builds dependencies while registries are reachable
        if arguments.tiered:
            s3_server.unavailable_reason()
        network.enter()
    clients = PROGRAMS.available(arguments.clients)
    if not clients:
        print("no client can run on this machine")
        return 2
    if arguments.make is Make.APACHE and (reason := unavailable_reason()) is not None:
        print(f"Apache Kafka cannot run: {reason}")
        return 2
    load = Load(
        clients=clients,
        partitions=arguments.partitions,
        rate=arguments.rate,
        size=arguments.size,
        acks=arguments.acks,
        unclean=arguments.unclean,
        rules=rules_of(arguments),
    )
    try:
        results = carry_out(arguments, load)
    except (RunFailed, AssertionError) as error:
        print(f"the run was aborted: {error}\nfiles: {arguments.directory}")
        return 2
    failures = [*results.errors, *shortfalls(arguments, results)]
    report(arguments.make, arguments.minutes, results, failures)
    if failures or not results.is_clean:
        print(f"files: {arguments.directory}")
        return 1
    if not arguments.keep:
        shutil.rmtree(arguments.directory)
    return 0


def rules_of(arguments: argparse.Namespace) -> Rules:
    if arguments.strict:
        return Rules()
    return Rules(lossy=arguments.acks != "all" or arguments.unclean, idempotent=arguments.acks == "all")


def carry_out(arguments: argparse.Namespace, load: Load) -> Results:
    print(
        f"seed {arguments.seed}, {arguments.make}, acks={load.acks}{', unclean elections' * load.unclean}", flush=True
    )
    shutil.rmtree(arguments.directory, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network.network(NODES))
        if net.refusal is not None:
            print(f"skipped: partitions: {net.refusal}", flush=True)
        tier = stack.enter_context(store(arguments, net)) if arguments.tiered else None
        settings = None if tier is None else tier.node_settings
        security = Security(arguments.directory / "security", hosts(net)) if arguments.secure else None
        nodes = ChaosCluster(arguments.directory, arguments.make, NODES, net, settings, security)
        cluster = stack.enter_context(nodes)
        return run_with_faults(arguments, RunningParts(cluster, net, tier), load)


def hosts(net: network.Network) -> list[str]:
    return sorted({net.addresses(node)[0].rpartition(":")[0] for node in range(1, NODES + 1)})


def store(arguments: argparse.Namespace, net: network.Network) -> Tier:
    refusal = s3_server.unavailable_reason()
    if refusal is not None:
        print(f"skipped: store faults; the store is a directory, since no S3 server can run: {refusal}", flush=True)
    return Tier(arguments.directory, net, arguments.seed, refusal)


class RunningParts(NamedTuple):
    """The running cluster, network and tier."""

    cluster: ChaosCluster
    network: network.Network
    tier: Tier | None


def run_with_faults(arguments: argparse.Namespace, parts: RunningParts, load: Load) -> Results:
    cluster, net, tier = parts
    names = () if tier is None else TOPICS
    timeline = Timeline(arguments.directory / "timeline.log", cluster, [load.topic, *names])
    faults = Faults(cluster, net, random.Random(arguments.seed), load.unclean, names, timeline.on_fault)
    main_topic, tier_run, tiered = TopicRun(cluster, net, load), None, []
    if tier is not None:
        tier.attach(cluster)
        tier_run = TierRun(tier, net, random.Random(f"store {arguments.seed}"))
        tiered = [TopicRun(cluster, net, each) for each in loads()]
    with timeline.watching():
        Run(cluster, main_topic, faults, tiered, tier_run).carry_out(arguments.minutes * 60)
    return Results(load, main_topic.outcome, faults, [each.outcome for each in tiered], tier_run)


def shortfalls(arguments: argparse.Namespace, results: Results) -> list[str]:
    """Return the thresholds that the run missed."""
    wanted = {
        "acknowledged records": (results.main.findings.acknowledged, arguments.min_acknowledged, 100_000),
        "faults": (len(results.faults.done), arguments.min_faults, 6),
    }
    least = {
        what: (had, int(per * arguments.minutes) if asked is None else asked)
        for what, (had, asked, per) in wanted.items()
    }
    short = [f"only {had:,} {what}, minimum {least:,}" for what, (had, least) in least.items() if had < least]
    short += [f"no node was {kind}" for kind in missing_kinds(results.faults, arguments.minutes)]
    longest = max((gap.duration_ms for gap in results.main.availability.gaps), default=0)
    return short + [f"a partition acknowledged nothing for {longest} ms"] * (longest > arguments.max_gap * 1000)


def missing_kinds(faults: Faults, minutes: float) -> list[str]:
    """Return the kinds of fault that a run of this length must have and that did not occur."""
    if minutes < LONG_RUN_MINUTES:
        return []
    required = REQUIRED if faults.network.refusal is None else [DEAD]
    return [kind for kind in required if all(fault.kind != kind for fault in faults.done)]


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print(f"{'clean' if code == 0 else 'NOT clean'}, {time.monotonic() - started:.0f} s")
    sys.exit(code)
