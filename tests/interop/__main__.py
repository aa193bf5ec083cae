"""`make interop`: run all tests that need Apache Kafka; the last line is `N passed, N failed`."""

import sys
from pathlib import Path

import pytest


class Count:
    """A pytest plugin that counts outcomes."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a failure in any phase, and a success in the call phase."""
        self.failed += report.failed
        self.passed += report.passed and report.when == "call"


def main() -> int:
    """Run the interop tests. Return the exit code."""
    count = Count()
    code = pytest.main(["-m", "interop", str(Path(__file__).parents[1]), *sys.argv[1:]], plugins=[count])
    print(f"{count.passed} passed, {count.failed} failed")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
