"""Java consumers across an unclean election: they have read lost records and must detect the divergence (KIP-320)."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import java_command, unavailable_reason
from tests.support.kafka.kraft_nodes import Make
from tests.support.kafka.unclean_election import UncleanElection

pytestmark = pytest.mark.interop

PROGRAM = str(Path(__file__).parent / "java" / "TruncationScenarios.java")
KEPT = [f"old-{offset}" for offset in range(3)]
LOST = [f"old-{offset}" for offset in range(3, 6)]
# Readers are at offset 6: a valid position in one topic, beyond the log end in the other.
NEW = {"long": [f"new-{offset}" for offset in range(3, 9)], "short": ["new-3"]}
POSITION = len(KEPT + LOST)


class TruncationProgram:
    """The Java program as a process that prints its observations until the next event."""

    def __init__(self, bootstrap: str, topics: Sequence[str], errors: Path) -> None:
        command = java_command(PROGRAM, bootstrap, ",".join(topics), str(POSITION), heap="256m")
        self._errors = errors
        with errors.open("w") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
            )

    def output(self) -> list[str]:
        """Return the lines up to the next "ready"."""
        assert self._process.stdout is not None
        lines: list[str] = []
        for line in self._process.stdout:
            if line.strip() == "ready":
                return lines
            lines.append(line.strip())
        raise AssertionError(f"the program ended: {lines}\n{self._errors.read_text()[-2000:]}")

    def after_event(self) -> list[str]:
        """Signal an event and return the lines that follow it."""
        assert self._process.stdin is not None
        self._process.stdin.write("continue\n")
        self._process.stdin.flush()
        return self.output()

    def __enter__(self) -> "TruncationProgram":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def observations(directory: Path, make: Make) -> list[list[str]]:
    """Return the observations before the election, after it, and after the first leader leads again."""
    with UncleanElection(directory, make, list(NEW)) as cluster:
        for topic in NEW:
            cluster.produce(topic, *KEPT)
        with TruncationProgram(cluster.bootstrap, list(NEW), directory / "errors") as program:
            cluster.suspend_follower()
            for topic in NEW:
                cluster.produce(topic, *LOST)
            assert program.output() == []
            output = [program.after_event()]
            cluster.elect_uncleanly()
            for topic, values in NEW.items():
                cluster.produce(topic, *values)
            cluster.bring_back()
            output.append(program.after_event())
            cluster.elect_preferred()
            output.append(program.after_event())
    return output


def expected(topic: str) -> list[list[str]]:
    """Return the observations with Apache Kafka."""
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
        f"earliest continues: {first}",
        f"latest continues: {first}",
        f"none continues: {truncated}",
        f"none resumes at the divergence: {first}",
        f"earliest restarted: {first}",
        f"earliest after a seek: {first}",
        f"latest restarted: {first}",
        f"latest after a seek: {first}",
        f"none restarted: {truncated}",
        f"none after a seek: {truncated}",
        f"none restarted without an epoch: {blind}",
        f"found by time: {'8' if topic == 'long' else '3'}@later",
    ]
    after_return = [
        f"late continues: {truncated}",
        *(f"{policy} is undisturbed: {' '.join(rest)}".strip() for policy in ("earliest", "latest", "none")),
    ]
    return [[f"{topic}: {line}" for line in lines] for lines in (before, after_election, after_return)]


@pytest.mark.parametrize("make", [Make.OTTLA, pytest.param(Make.APACHE, marks=pytest.mark.slow)])
def test_java_consumers_detect_the_truncation(tmp_path: Path, make: Make) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    output = observations(tmp_path, make)
    of_long, of_short = expected("long"), expected("short")
    assert output == [long + short for long, short in zip(of_long, of_short, strict=True)]
