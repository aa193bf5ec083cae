"""Apache Kafka's command-line tools, many calls in one Java process."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.support.kafka.apache_kafka import REPOSITORY, java_command

PROGRAM = REPOSITORY / "tests" / "interop" / "java" / "ToolRunner.java"

PERMIT_EXIT_GUARD = "-Djava.security.manager=allow"
"""The program keeps tools from ending the process by a security manager, which Java 17 permits on request only."""

OPEN_HOOKS = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
"""The program runs the shutdown hooks of a tool, which belong to the Java runtime."""


class Outcome(NamedTuple):
    """Exit code and output of a call of a tool."""

    code: int
    out: str
    err: str


class KafkaTools:
    """A Java process that runs tools one after another; a context manager that starts and stops the process."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "KafkaTools":
        java, *rest = java_command(str(PROGRAM), heap="384m")
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [java, PERMIT_EXIT_GUARD, *OPEN_HOOKS, *rest],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def run(self, main: str, *arguments: str, stdin: str = "") -> Outcome:
        """Run the tool of a main class. Raises AssertionError if the process ends."""
        return self._call(main, arguments, stdin, guarded=False)

    def usage(self, main: str, *arguments: str) -> Outcome:
        """Run a call that prints a usage text and connects to nothing."""
        return self._call(main, arguments, "", guarded=True)

    def _call(self, main: str, arguments: Sequence[str], stdin: str, *, guarded: bool) -> Outcome:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        call = {"main": main, "arguments": arguments, "stdin": stdin, "guarded": guarded}
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the Java process ended in {main} {' '.join(arguments)}: {self._log.read_text()[-3000:]}"
        return Outcome(**json.loads(line))
