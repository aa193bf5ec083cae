"""Hurts a cluster of three brokers at random while idempotent producers write to it, and checks what became of it.

`python -m tests.chaos --minutes 10` (`make chaos`): replication factor 3, min.insync.replicas 2, acks=all; producers
and consumers of librdkafka, Java and franz-go. Every few seconds a random node is killed with -9, paused, restarted, or
cut off in one direction or both. Ends with the count of each anomaly, in Jepsen's terms, and the gaps in availability;
with 0 only if there is no anomaly, nothing broke off, and there were enough records and faults to mean anything.

`--acks 1 --unclean` makes losses permissible: acks=1 without retries, and unclean elections. The checker then permits
suffixes that a leader of a later epoch cut off; consumers must have been told of every cut into what they had read.
Without idempotence it permits repetitions too: librdkafka was seen to send again what had no answer, at retries=0.
With `--strict` all that is an anomaly, which shows that the checker finds some. `--make apache` does the same to three
nodes of Apache Kafka.
"""

import argparse
import random
import resource
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from tests.chaos import network
from tests.chaos.availability import by_fault, percentile, told
from tests.chaos.checker import Anomaly, Rules
from tests.chaos.faults import Faults
from tests.chaos.nodes import ChaosCluster
from tests.chaos.programs import Client
from tests.chaos.run import TOPIC, Load, Outcome, Run, RunFailed
from tests.chaos.timeline import Timeline
from tests.support.apache_kafka import REPOSITORY, unavailable_reason
from tests.support.kraft_nodes import Make

RATE_MAX_BYTES = 5_000_000
NODES = 3
LONGEST_TOLD = 3
BUILD = REPOSITORY / "build" / "chaos"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--make", type=Make, choices=list(Make), default=Make.OTTLA)
    parser.add_argument("--acks", choices=("all", "1"), default="all")
    parser.add_argument("--unclean", action="store_true", help="permit unclean elections, and bring some about")
    parser.add_argument(
        "--strict", action="store_true", help="judge as if nothing might be lost, whatever is asked for"
    )
    parser.add_argument("--clients", default=",".join(Client), help="some of " + ",".join(Client))
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=int, default=1200, help="records a second of each producer")
    parser.add_argument("--size", type=int, default=200, help="bytes of each record")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--min-acknowledged", type=int, help="fewer are a failure (100,000 a minute)")
    parser.add_argument("--min-faults", type=int, help="fewer are a failure (6 a minute)")
    parser.add_argument(
        "--max-gap", type=float, default=30, help="seconds in which a partition takes nothing; longer is a failure"
    )
    parser.add_argument("--directory", type=Path, help="of the nodes' files; emptied first (build/chaos/MAKE-SEED)")
    parser.add_argument("--keep", action="store_true", help="keep the nodes' files even if all is well")
    arguments = parser.parse_args()
    arguments.directory = arguments.directory or BUILD / f"{arguments.make}-{arguments.seed}"
    if arguments.rate * arguments.size > RATE_MAX_BYTES:
        parser.error(
            f"{arguments.rate} records of {arguments.size} bytes a second are more than {RATE_MAX_BYTES} bytes"
        )
    return arguments


def available_clients(names: str) -> list[Client]:
    """Those of the named that can run here; says why the others cannot."""
    found = []
    for client in map(Client, names.split(",")):
        reason = client.refusal()
        if reason is None:
            found.append(client)
        else:
            print(f"skipped: {client}: {reason}", flush=True)
    return found


def main() -> int:
    arguments = parsed()
    if not network.entered():
        for client in map(Client, arguments.clients.split(",")):
            client.refusal()  # fetches and builds what it can, as long as there are registries to be reached
        network.enter()
    clients = available_clients(arguments.clients)
    if not clients:
        print("no client can run")
        return 2
    if arguments.make is Make.APACHE and (reason := unavailable_reason()) is not None:
        print(f"no Apache Kafka: {reason}")
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
        outcome = carry_out(arguments, load)
    except (RunFailed, AssertionError) as error:
        print(f"the run broke off: {error}\nfiles: {arguments.directory}")
        return 2
    failures = [*outcome.errors, *shortfalls(arguments, outcome)]
    report(arguments, load, outcome, failures)
    if failures or not outcome.findings.is_clean:
        print(f"files: {arguments.directory}")
        return 1
    if not arguments.keep:
        shutil.rmtree(arguments.directory)
    return 0


def rules_of(arguments: argparse.Namespace) -> Rules:
    if arguments.strict:
        return Rules()
    return Rules(lossy=arguments.acks != "all" or arguments.unclean, idempotent=arguments.acks == "all")


def carry_out(arguments: argparse.Namespace, load: Load) -> Outcome:
    print(
        f"seed {arguments.seed}, {arguments.make}, acks={load.acks}{', unclean elections' * load.unclean}", flush=True
    )
    with network.network(NODES) as net:
        if net.refusal is not None:
            print(f"skipped: partitions: {net.refusal}", flush=True)
        with ChaosCluster(arguments.directory, arguments.make, NODES, net) as cluster:
            timeline = Timeline(arguments.directory / "timeline.log", cluster, TOPIC)
            faults = Faults(cluster, net, random.Random(arguments.seed), load.unclean, timeline.on_fault)
            with timeline.watching():
                return Run(cluster, net, load, faults).carry_out(arguments.minutes * 60)


def shortfalls(arguments: argparse.Namespace, outcome: Outcome) -> list[str]:
    """What makes a clean run mean too little."""
    wanted = {
        "acknowledged records": (outcome.findings.acknowledged, arguments.min_acknowledged, 100_000),
        "faults": (len(outcome.faults.done), arguments.min_faults, 6),
    }
    least = {
        what: (had, int(per * arguments.minutes) if asked is None else asked)
        for what, (had, asked, per) in wanted.items()
    }
    short = [f"only {had:,} {what}, not {least:,}" for what, (had, least) in least.items() if had < least]
    longest = max((gap.duration_ms for gap in outcome.availability.gaps), default=0)
    return short + [f"a partition took nothing for {longest} ms"] * (longest > arguments.max_gap * 1000)


def report(arguments: argparse.Namespace, load: Load, outcome: Outcome, failures: list[str]) -> None:
    findings, faults, gaps = outcome.findings, outcome.faults.done, outcome.availability.gaps
    print(
        f"\n{arguments.minutes:g} minutes of {arguments.make}, {', '.join(load.clients)}, {load.partitions} partitions"
    )
    print(
        f"{findings.acknowledged:,} records acknowledged, {findings.failed:,} given up {dict(findings.failures) or ''}"
    )
    kinds = Counter(fault.kind for fault in faults)
    print(f"{len(faults)} faults: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    if outcome.faults.forced:
        print(f"{outcome.faults.forced} nodes did not stop when asked to, and were killed")
    durations = [gap.duration_ms for gap in gaps]
    p50, worst = percentile(durations, 0.5), max(durations, default=0)
    share = outcome.availability.share(outcome.ended_ms)
    print(f"availability: {share:.1%} of the time; gaps: {len(gaps)}, p50 {p50:.0f} ms, max {worst} ms")
    for kind, each in sorted(by_fault(gaps, faults).items()):
        print(f"  after {kind}: {len(each)}, p50 {percentile(each, 0.5):.0f} ms, max {max(each)} ms")
    for gap in sorted(gaps, key=lambda gap: -gap.duration_ms)[:LONGEST_TOLD]:
        print(f"  longest: {told(gap, faults)}")
    for client, own in zip(load.clients, outcome.by_client, strict=True):
        silence = max(own.gaps, key=lambda gap: gap.duration_ms, default=None)
        print(f"  longest silence of {client}: {'none' if silence is None else told(silence, faults)}")
    if load.rules.lossy:
        print(f"{findings.permitted_losses:,} acknowledged records lost as permitted, in {findings.loss_windows} cuts")
        print(f"{findings.permitted_repeats:,} repeated or out of order by clients without idempotence")
    seen = ", ".join(f"{client} {findings.truncations[number]}" for number, client in enumerate(load.clients))
    print(f"truncations seen by consumers: {seen}")
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"the checker held {outcome.records:,} offsets; this process had {memory_mb} MiB at most\n")
    for anomaly in Anomaly:
        print(f"{anomaly:22} {findings.counts[anomaly]}")
        for example in findings.examples.get(anomaly, []):
            print(f"  {example}")
    for failure in failures:
        print(f"failed: {failure}")


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print(f"{'clean' if code == 0 else 'NOT clean'}, {time.monotonic() - started:.0f} s")
    sys.exit(code)
