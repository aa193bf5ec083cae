"""Programs on top of other people's client libraries, for long runs under faults: their commands and builds."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.support.kafka.apache_kafka import REPOSITORY, java_command, unavailable_reason


class ClientLibrary(StrEnum):
    """A client library."""

    LIBRDKAFKA = "librdkafka"
    JAVA = "java"
    FRANZ_GO = "franz-go"


@dataclass(frozen=True, slots=True)
class ClientPrograms:
    """One program for each library.

    `package` contains the module `librdkafka` and the Go sources in `go`; `java` is the file of the Java program, which
    stands beside them. The Go program is built in `build/NAME`.
    """

    name: str
    package: str
    java: str

    def command(self, library: ClientLibrary) -> list[str]:
        """Return the command that starts the program, without arguments."""
        match library:
            case ClientLibrary.LIBRDKAFKA:
                return [sys.executable, "-m", f"{self.package}.librdkafka"]
            case ClientLibrary.JAVA:
                return java_command(str(self._sources / self.java), heap="192m")
            case ClientLibrary.FRANZ_GO:
                return [str(self._go_program)]

    def refusal(self, library: ClientLibrary) -> str | None:
        """Return the reason why the program cannot run here, None once it is built. A build may use registries."""
        match library:
            case ClientLibrary.LIBRDKAFKA:
                return None
            case ClientLibrary.JAVA:
                return unavailable_reason()
            case ClientLibrary.FRANZ_GO:
                return self._build_go()

    def available(self, names: str) -> list[ClientLibrary]:
        """Return the libraries whose programs can run here, of comma-separated names. Print why others cannot."""
        found = []
        for library in map(ClientLibrary, names.split(",")):
            if (reason := self.refusal(library)) is None:
                found.append(library)
            else:
                print(f"skipped: {library}: {reason}", flush=True)
        return found

    @property
    def _sources(self) -> Path:
        return REPOSITORY / self.package.replace(".", "/")

    @property
    def _go_program(self) -> Path:
        return REPOSITORY / "build" / self.name / "franz-go"

    def _build_go(self) -> str | None:
        return build_go(self._sources / "go", self._go_program)


def build_go(sources: Path, program: Path) -> str | None:
    """Build the Go program of a directory; return the reason why it cannot be built here, or None."""
    if shutil.which("go") is None:
        return "go is not on PATH"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-buildvcs=false", "-o", str(program), "."]
    built = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    return None if built.returncode == 0 else f"go build failed: {built.stderr.strip()[-500:]}"
