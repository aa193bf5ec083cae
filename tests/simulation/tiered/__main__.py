"""Many histories: `python -m tests.simulation.tiered FIRST END [ACTIONS]`. Ends with 1 if one of them did not hold."""

import logging
import sys

from tests.simulation.tiered.cluster import Cluster, Violation


def main(first: int, end: int, actions: int) -> int:
    failed = 0
    for seed in range(first, end):
        try:
            print(seed, Cluster(seed, actions).run(), flush=True)
        except Violation as violation:
            print(violation, flush=True)
            failed += 1
    print(f"{end - first} histories, {failed} did not hold")
    return 1 if failed else 0


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    numbers = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 250))
