"""`python -m tests.simulation --seeds N`: the command behind `make sim`."""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pool

from tests.simulation.campaign import run_seed
from tests.simulation.checker import Counts
from tests.simulation.simulation import Result

DEFAULT_EVENTS = 2_000


def main(arguments: list[str] | None = None) -> int:
    """Run seeds; 1 if any violates an invariant, or if something that must happen never did."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds (default: 1000)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default: 1)")
    parser.add_argument("--seed", type=int, help="replay one seed and tell its story")
    parser.add_argument("--events", type=int, default=DEFAULT_EVENTS, help="events under faults per seed, at least")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.events)
    return _run(range(options.first, options.first + options.seeds), options.events, options.processes)


def _replay(seed: int, events: int) -> int:
    result = run_seed(seed, events)
    print("\n".join(result.lines))
    return _sum_up([result], must_see_all=False)


def _run(seeds: range, events: int, processes: int) -> int:
    started = time.monotonic()
    results = []
    for result in _results(seeds, events, processes):
        results.append(result)
        if sys.stderr.isatty():
            print(f"\r{len(results)} of {len(seeds)} seeds", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"{time.monotonic() - started:.0f} s")
    return _sum_up(results, must_see_all=len(seeds) >= 100)


def _results(seeds: range, events: int, processes: int) -> Iterator[Result]:
    jobs = ((seed, events) for seed in seeds)
    if processes <= 1:
        yield from (run_seed(*job) for job in jobs)
        return
    with Pool(processes) as pool:
        yield from pool.imap_unordered(_run_job, jobs, chunksize=4)


def _run_job(job: tuple[int, int]) -> Result:
    return run_seed(*job)


def _sum_up(results: list[Result], *, must_see_all: bool) -> int:
    found = sorted((result.found for result in results if result.found is not None), key=lambda each: each.seed)
    for each in found:
        print(f"\nseed {each.seed}: {each.invariant} at event {each.event}: {each.text}")
        print("\n".join(f"    {line}" for line in each.last_lines[-12:]))
    totals: dict[str, int] = {}
    for result in results:
        for name, count in result.counts.by_name.items():
            totals[name] = totals.get(name, 0) + count
    if found:
        print(f"\nreplay with: make sim SEED={found[0].seed}")
    print(", ".join(f"{count} {name}" for name, count in totals.items()))
    never = [name for name in Counts.NAMES if totals.get(name, 0) == 0] if must_see_all else []
    if never:
        print(f"never seen: {', '.join(never)}")
    print(f"{len(results)} seeds, {sum(result.events for result in results)} events, {len(found)} violations")
    return 1 if found or never else 0


if __name__ == "__main__":
    sys.exit(main())
