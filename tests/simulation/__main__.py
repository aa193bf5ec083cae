"""`python -m tests.simulation --seeds N`: seeded simulation of quorum, replication, remote storage, cluster,
transactions, share partitions.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tests.simulation.campaign import RunSeed, run_seeds
from tests.simulation.cluster.campaign import run_seed as run_cluster_seed
from tests.simulation.cluster.checker import ClusterCounts
from tests.simulation.quorum.campaign import run_seed as run_quorum_seed
from tests.simulation.quorum.checker import QuorumCounts
from tests.simulation.remote_log.campaign import run_seed as run_remote_storage_seed
from tests.simulation.remote_log.state import RemoteStorageCounts
from tests.simulation.replication.campaign import run_seed as run_replication_seed
from tests.simulation.replication.counts import ReplicationCounts
from tests.simulation.share.campaign import run_seed as run_share_seed
from tests.simulation.share.checker import ShareCounts
from tests.simulation.simulator import SimulationResult
from tests.simulation.transactions.campaign import run_seed as run_transaction_seed
from tests.simulation.transactions.checker import TransactionCounts

_SEEDS_OF_A_CAMPAIGN: Final = 100
"""A campaign of this many seeds must contain every incident."""
DEFAULT_EVENTS: Final = 2_000


class Plane(NamedTuple):
    """A simulator, and the incidents that a campaign of many seeds must contain."""

    run_seed: RunSeed
    incidents: Sequence[str]


PLANES: Final[Mapping[str, Plane]] = {
    "quorum": Plane(run_quorum_seed, QuorumCounts.NAMES),
    "data": Plane(run_replication_seed, ReplicationCounts.NAMES),
    "tiered": Plane(run_remote_storage_seed, RemoteStorageCounts.NAMES),
    "cluster": Plane(run_cluster_seed, ClusterCounts.NAMES),
    "transactions": Plane(run_transaction_seed, TransactionCounts.NAMES),
    "share": Plane(run_share_seed, ShareCounts.NAMES),
}


def main(arguments: list[str] | None = None) -> int:
    """Run seeds; return 1 if one violates an invariant, or if an incident that must occur never occurs."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--plane", choices=("all", *PLANES), default="all", help="simulator (default: all)")
    parser.add_argument("--seeds", type=int, default=1_000, help="number of seeds of each (default: 1000)")
    parser.add_argument("--first", type=int, default=1, help="first seed (default: 1)")
    parser.add_argument("--seed", type=int, help="replay one seed and print its history")
    parser.add_argument("--events", type=int, default=DEFAULT_EVENTS, help="minimum events under faults per seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    names = tuple(PLANES) if options.plane == "all" else (options.plane,)
    if options.seed is not None:
        return max(_replay(name, options.seed, options.events) for name in names)
    seeds = range(options.first, options.first + options.seeds)
    return max(_run(name, seeds, options.events, options.processes) for name in names)


def _replay(plane: str, seed: int, events: int) -> int:
    result = PLANES[plane].run_seed(seed, events)
    print(f"{plane}:")
    print("\n".join(result.lines))
    return _sum_up(plane, [result], must_see_all=False)


def _run(plane: str, seeds: range, events: int, processes: int) -> int:
    started = time.monotonic()
    results = []
    for result in run_seeds(PLANES[plane].run_seed, seeds, events, processes=processes):
        results.append(result)
        if sys.stderr.isatty():
            print(f"\r{plane}: {len(results)} of {len(seeds)} seeds", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"{plane}: {time.monotonic() - started:.0f} s")
    return _sum_up(plane, results, must_see_all=len(seeds) >= _SEEDS_OF_A_CAMPAIGN)


def _sum_up(plane: str, results: Sequence[SimulationResult], *, must_see_all: bool) -> int:
    found = sorted((result.found for result in results if result.found is not None), key=lambda each: each.seed)
    for each in found:
        print(f"\nseed {each.seed}: {each.invariant} at event {each.event}: {each.text}")
        print("\n".join(f"    {line}" for line in each.last_lines[-12:]))
    totals: dict[str, int] = {}
    for result in results:
        for name, count in result.counts.by_name.items():
            totals[name] = totals.get(name, 0) + count
    if found:
        print(f"\nreplay with: make sim PLANE={plane} SEED={found[0].seed}")
    print(", ".join(f"{count} {name}" for name, count in totals.items()))
    never = [name for name in PLANES[plane].incidents if totals.get(name, 0) == 0] if must_see_all else []
    if never:
        print(f"never occurred: {', '.join(never)}")
    print(f"{len(results)} seeds, {sum(result.events for result in results)} events, {len(found)} violations")
    return 1 if found or never else 0


if __name__ == "__main__":
    sys.exit(main())
