"""`python -m tests.benchmarks.report`: make `docs/benchmarks.md` and its plots from the last run of `make bench`."""

import sys

from tests.benchmarks.report.files import DIRECTORY, read
from tests.benchmarks.report.page import write_page
from tests.support.kafka.apache_kafka import REPOSITORY


def main() -> int:
    """Write the page; return the exit code."""
    try:
        report = read()
    except OSError as error:
        print(f"{DIRECTORY} has no result ({error.strerror}): run `make bench` first", file=sys.stderr)
        return 1
    print(write_page(report, REPOSITORY / "docs"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
