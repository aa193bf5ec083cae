"""The integration tests of franz-go's client package, built with Go once from the module of a pinned version.

If something is missing on the machine (Go, a reachable module proxy), `unavailable_reason` returns the reason, so that
a test can skip with it instead of failing. The build stays in `build/franz-go`.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.kafka.apache_kafka import REPOSITORY

MODULE = "github.com/twmb/franz-go@v1.22.2"
BUILD = REPOSITORY / "build" / "franz-go"
PROGRAM = BUILD / "kgo.test"
STAMP = BUILD / ".built"
TIMEOUT_MINUTES = 30
RESULT = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)


@dataclass(frozen=True)
class SuiteResults:
    """Names of tests and subtests by result; `output` is what the program printed, without the log of its clients."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]
    output: str

    @classmethod
    def of(cls, output: str) -> "SuiteResults":
        by_result: dict[str, set[str]] = {"PASS": set(), "FAIL": set(), "SKIP": set()}
        for result, name in RESULT.findall(output):
            by_result[result].add(name)
        passed, failed, skipped = (frozenset(by_result[each]) for each in ("PASS", "FAIL", "SKIP"))
        return cls(passed, failed, skipped, output)


@cache
def unavailable_reason() -> str | None:
    """Return why the suite cannot be built on this machine, None if it is built; may access a module proxy."""
    if PROGRAM.exists() and STAMP.exists() and STAMP.read_text().partition("\n")[0] == MODULE:
        return None
    return _build()


def _build() -> str | None:
    if shutil.which("go") is None:
        return "go is not on PATH"
    BUILD.mkdir(parents=True, exist_ok=True)
    found = _go("mod", "download", "-json", MODULE, cwd=BUILD)
    if found.returncode != 0:
        return f"go mod download {MODULE} failed: {(found.stderr or found.stdout).strip()[-500:]}"
    source = Path(json.loads(found.stdout)["Dir"])
    built = _go("test", "-c", "-trimpath", "-o", str(PROGRAM), "./pkg/kgo", cwd=source)
    if built.returncode != 0:
        return f"go test -c of {MODULE} failed: {built.stderr.strip()[-500:]}"
    STAMP.write_text(f"{MODULE}\n{source}\n")
    return None


def _go(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def run_suite(
    bootstrap: str, log: Path, environment: Mapping[str, str], *, left_out: Iterable[str] = ()
) -> SuiteResults:
    """Run all tests but those left out. The log of the clients goes to `log`."""
    source = Path(STAMP.read_text().splitlines()[1]) / "pkg" / "kgo"  # a test reads the sources in its directory
    command = [str(PROGRAM), "-test.v", f"-test.timeout={TIMEOUT_MINUTES}m"]
    if names := "|".join(left_out):
        command.append(f"-test.skip=^({names})$")
    with log.open("w") as errors:
        done = subprocess.run(
            command,
            cwd=source,
            env={**os.environ, "KGO_SEEDS": bootstrap, **environment},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            check=False,
        )
    return SuiteResults.of(done.stdout)
