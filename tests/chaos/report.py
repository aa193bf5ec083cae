"""Report at the end of a chaos run."""

import resource
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.availability import Fault, by_fault, describe, percentile
from tests.chaos.checker import Anomaly
from tests.chaos.faults import Faults
from tests.chaos.tier_run import TierRun
from tests.chaos.topic import Load, Outcome
from tests.support.kafka.kraft_nodes import Make

LONGEST_TOLD = 3


@dataclass(frozen=True)
class Results:
    """Results of a run: main topic and load, faults, and the tier if there is one."""

    load: Load
    main: Outcome
    faults: Faults
    tiered: Sequence[Outcome]
    tier: TierRun | None

    @property
    def errors(self) -> list[str]:
        found = [error for outcome in (self.main, *self.tiered) for error in outcome.errors]
        return found if self.tier is None else found + self.tier.errors

    @property
    def is_clean(self) -> bool:
        return self.main.findings.is_clean and (self.tier is None or self.tier.is_clean)

    @property
    def records(self) -> int:
        return sum(outcome.records for outcome in (self.main, *self.tiered))


def described(kind: str, faults: Sequence[Fault]) -> str:
    """Return the number of faults of a kind, and their total duration."""
    durations = [fault.ended_ms - fault.begun_ms for fault in faults if fault.kind == kind]
    return f"{len(durations)} {kind} ({sum(durations) / 1000:.0f} s)"


def report(make: Make, minutes: float, results: Results, failures: list[str]) -> None:
    """Print figures, one line per checker with counter-examples, and other failures."""
    load, outcome, faults = results.load, results.main, results.faults.done
    findings, gaps = outcome.findings, outcome.availability.gaps
    print(f"\n{minutes:g} minutes of {make}, {', '.join(load.clients)}, {load.partitions} partitions")
    print(
        f"{findings.acknowledged:,} records acknowledged, {findings.failed:,} given up {dict(findings.failures) or ''}"
    )
    kinds = Counter(fault.kind for fault in faults)
    print(f"{len(faults)} faults: " + ", ".join(described(kind, faults) for kind, _ in kinds.most_common()))
    print(f"{results.faults.isolated_deletions} remote segments deleted by nodes without contact to the controllers")
    if results.faults.forced:
        print(f"{results.faults.forced} nodes did not stop on request and were killed")
    durations = [gap.duration_ms for gap in gaps]
    p50, worst = percentile(durations, 0.5), max(durations, default=0)
    share = outcome.availability.share(outcome.ended_ms)
    print(f"availability: {share:.1%} of the time; gaps: {len(gaps)}, p50 {p50:.0f} ms, max {worst} ms")
    for kind, each in sorted(by_fault(gaps, faults).items()):
        print(f"  after {kind}: {len(each)}, p50 {percentile(each, 0.5):.0f} ms, max {max(each)} ms")
    for gap in sorted(gaps, key=lambda gap: -gap.duration_ms)[:LONGEST_TOLD]:
        print(f"  longest: {describe(gap, faults)}")
    for client, own in zip(load.clients, outcome.by_client, strict=True):
        silence = max(own.gaps, key=lambda gap: gap.duration_ms, default=None)
        print(f"  longest gap of {client}: {'none' if silence is None else describe(silence, faults)}")
    if load.rules.lossy:
        print(f"{findings.permitted_losses:,} acknowledged records lost as permitted in {findings.loss_windows} cuts")
        print(f"{findings.permitted_repeats:,} duplicated or reordered by clients without idempotence")
    elif findings.permitted_repeats:
        print(f"{findings.permitted_repeats:,} duplicated or reordered by clients that took another producer epoch")
    seen = ", ".join(f"{client} {findings.truncations[number]}" for number, client in enumerate(load.clients))
    print(f"truncations seen by consumers: {seen}")
    for note in [] if results.tier is None else results.tier.notes:
        print(note)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"the checker tracked {results.records:,} offsets; this process used at most {memory_mb} MiB\n")
    for anomaly in Anomaly:
        print(f"{anomaly:22} {findings.counts[anomaly]} bad")
        for example in findings.examples.get(anomaly, []):
            print(f"  {example}")
    for verdict in [] if results.tier is None else results.tier.verdicts:
        print("\n".join(verdict.lines))
    for failure in failures:
        print(f"failed: {failure}")
