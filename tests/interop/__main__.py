"""`make interop`: everything that needs Apache Kafka itself; ends with `N passed, N failed`."""

import sys
from pathlib import Path

import pytest


class Count:
    """Counts outcomes as pytest reports them."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over: a failure in any phase counts, a success in its call."""
        self.failed += report.failed
        self.passed += report.passed and report.when == "call"


def main() -> int:
    """Run the interop tests; returns the exit code."""
    count = Count()
    code = pytest.main(["-m", "interop", str(Path(__file__).parents[1]), *sys.argv[1:]], plugins=[count])
    print(f"{count.passed} passed, {count.failed} failed")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
