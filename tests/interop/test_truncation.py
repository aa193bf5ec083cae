"""Java consumers over an unclean election: they read what was lost, and must find out where the logs part (KIP-320)."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import java_command, unavailable_reason
from tests.support.kafka.kraft_nodes import Make
from tests.support.kafka.unclean_election import UncleanElection

pytestmark = pytest.mark.interop

PROGRAM = str(Path(__file__).parent / "java" / "TruncationStories.java")
KEPT = [f"old-{offset}" for offset in range(3)]
LOST = [f"old-{offset}" for offset in range(3, 6)]
# Readers stand at offset 6: their position seems valid in the one, and lies beyond the end of the other.
NEW = {"long": [f"new-{offset}" for offset in range(3, 9)], "short": ["new-3"]}
POSITION = len(KEPT + LOST)


class Stories:
    """The program as a process that tells until it is ready for the next event."""

    def __init__(self, bootstrap: str, topics: Sequence[str], errors: Path) -> None:
        command = java_command(PROGRAM, bootstrap, ",".join(topics), str(POSITION), heap="256m")
        self._errors = errors
        with errors.open("w") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )

    def told(self) -> list[str]:
        """The lines until it waits."""
        assert self._process.stdout is not None
        lines: list[str] = []
        for line in self._process.stdout:
            if line.strip() == "ready":
                return lines
            lines.append(line.strip())
        raise AssertionError(f"the program ended: {lines}\n{self._errors.read_text()[-2000:]}")

    def goes_on(self) -> list[str]:
        """What it tells after an event."""
        assert self._process.stdin is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()
        return self.told()

    def __enter__(self) -> "Stories":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def stories(directory: Path, make: Make) -> list[list[str]]:
    """What is told before the election, after it, and after the first leader has led again."""
    with UncleanElection(directory, make, list(NEW)) as cluster:
        for topic in NEW:
            cluster.produce(topic, *KEPT)
        with Stories(cluster.bootstrap, list(NEW), directory / "errors") as program:
            cluster.suspend_follower()
            for topic in NEW:
                cluster.produce(topic, *LOST)
            assert program.told() == []
            told = [program.goes_on()]
            cluster.elect_uncleanly()
            for topic, values in NEW.items():
                cluster.produce(topic, *values)
            cluster.bring_back()
            told.append(program.goes_on())
            cluster.elect_preferred()
            told.append(program.goes_on())
    return told


def expected(topic: str) -> list[list[str]]:
    """What Apache Kafka makes of it."""
    old = " ".join(f"{offset}={value}@first" for offset, value in enumerate(KEPT + LOST))
    first, *rest = [f"{offset}={value}@later" for offset, value in enumerate(NEW[topic], len(KEPT))]
    truncated = f"LogTruncationException {len(KEPT)}@first"
    blind = "6=new-6@later" if topic == "long" else "OffsetOutOfRangeException 6"
    before = [
        f"earliest has read: {old}",
        f"latest has read: {old}",
        f"none has read: {old}",
        "committed: 6@first",
        "committed without an epoch: 6@unknown",
        "found by time: 5@first",
        f"late has read: {old}",
    ]
    after_election = [
        f"earliest goes on: {first}",
        f"latest goes on: {first}",
        f"none goes on: {truncated}",
        f"none goes on where it is told: {first}",
        f"earliest restarted: {first}",
        f"earliest has sought: {first}",
        f"latest restarted: {first}",
        f"latest has sought: {first}",
        f"none restarted: {truncated}",
        f"none has sought: {truncated}",
        f"none restarted without an epoch: {blind}",
        f"found by time: {'8' if topic == 'long' else '3'}@later",
    ]
    after_return = [
        f"late goes on: {truncated}",
        *(f"{policy} is left in peace: {' '.join(rest)}".strip() for policy in ("earliest", "latest", "none")),
    ]
    return [[f"{topic}: {line}" for line in lines] for lines in (before, after_election, after_return)]


@pytest.mark.parametrize("make", [Make.OTTLA, pytest.param(Make.APACHE, marks=pytest.mark.slow)])
def test_java_consumers_find_out_what_was_lost(tmp_path: Path, make: Make) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    told = stories(tmp_path, make)
    of_long, of_short = expected("long"), expected("short")
    assert told == [long + short for long, short in zip(of_long, of_short, strict=True)]
