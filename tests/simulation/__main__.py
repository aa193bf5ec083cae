"""`python -m tests.simulation --seeds N`: the command behind `make sim`, for quorum, data plane and tier."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing import Pool
from typing import Final, NamedTuple, Protocol

from tests.simulation import campaign as quorum
from tests.simulation.checker import Counts as QuorumCounts
from tests.simulation.data import campaign as data
from tests.simulation.data.checker import Counts as DataCounts
from tests.simulation.tiered import campaign as tiered
from tests.simulation.tiered.state import Counts as TieredCounts

DEFAULT_EVENTS: Final = 2_000


class FoundViolation(Protocol):
    """A violation, and what led to it."""

    @property
    def seed(self) -> int: ...
    @property
    def event(self) -> int: ...
    @property
    def invariant(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def last_lines(self) -> list[str]: ...


class CountsSeen(Protocol):
    @property
    def by_name(self) -> dict[str, int]: ...


class RunResult(Protocol):
    """What became of a seed."""

    @property
    def seed(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def counts(self) -> CountsSeen: ...
    @property
    def found(self) -> FoundViolation | None: ...
    @property
    def lines(self) -> list[str]: ...


Job = tuple[int, int]
"""A seed and its events."""


class Plane(NamedTuple):
    """What is simulated. A run of many seeds must have seen everything in `names`."""

    results: Callable[[list[Job], int], Iterable[RunResult]]
    names: Sequence[str]


def main(arguments: list[str] | None = None) -> int:
    """Run seeds; 1 if any violates an invariant, or if something that must happen never did."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--plane", choices=("all", *PLANES), default="all", help="what to simulate (default: all)")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds of each (default: 1000)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default: 1)")
    parser.add_argument("--seed", type=int, help="replay one seed and tell its story")
    parser.add_argument("--events", type=int, default=DEFAULT_EVENTS, help="events under faults per seed, at least")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    names = tuple(PLANES) if options.plane == "all" else (options.plane,)
    if options.seed is not None:
        return max(_replay(name, options.seed, options.events) for name in names)
    seeds = range(options.first, options.first + options.seeds)
    return max(_run(name, seeds, options.events, options.processes) for name in names)


def _replay(plane: str, seed: int, events: int) -> int:
    (result,) = PLANES[plane].results([(seed, events)], 1)
    print(f"{plane}:")
    print("\n".join(result.lines))
    return _sum_up(plane, [result], must_see_all=False)


def _run(plane: str, seeds: range, events: int, processes: int) -> int:
    started = time.monotonic()
    results = []
    for result in PLANES[plane].results([(seed, events) for seed in seeds], processes):
        results.append(result)
        if sys.stderr.isatty():
            print(f"\r{plane}: {len(results)} of {len(seeds)} seeds", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"{plane}: {time.monotonic() - started:.0f} s")
    return _sum_up(plane, results, must_see_all=len(seeds) >= 100)


def _quorum_results(jobs: list[Job], processes: int) -> Iterator[RunResult]:
    if processes <= 1:
        yield from map(_run_quorum_job, jobs)
        return
    with Pool(processes) as pool:
        yield from pool.imap_unordered(_run_quorum_job, jobs, chunksize=4)


def _run_quorum_job(job: Job) -> RunResult:
    return quorum.run_seed(*job)


def _data_results(jobs: list[Job], processes: int) -> Iterator[RunResult]:
    with data.workers(processes) as pool:
        yield from pool.imap_unordered(data.run_job, jobs, chunksize=min(4, len(jobs)))


def _tiered_results(jobs: list[Job], processes: int) -> Iterator[RunResult]:
    with tiered.workers(processes) as pool:
        yield from pool.imap_unordered(tiered.run_job, jobs, chunksize=min(4, len(jobs)))


PLANES: Final[Mapping[str, Plane]] = {
    "quorum": Plane(_quorum_results, QuorumCounts.NAMES),
    "data": Plane(_data_results, DataCounts.NAMES),
    "tiered": Plane(_tiered_results, TieredCounts.NAMES),
}


def _sum_up(plane: str, results: Sequence[RunResult], *, must_see_all: bool) -> int:
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
    never = [name for name in PLANES[plane].names if totals.get(name, 0) == 0] if must_see_all else []
    if never:
        print(f"never seen: {', '.join(never)}")
    print(f"{len(results)} seeds, {sum(result.events for result in results)} events, {len(found)} violations")
    return 1 if found or never else 0


if __name__ == "__main__":
    sys.exit(main())
