"""Machines on which the blocks of a page run: the network namespace of a test, or a clean Debian.

`Namespace` is the quick form: a fresh directory, the programs of this environment, and a loopback network of its own,
so that the ports on the pages are free. `tests.docs.clean_machine` has the strict form.
"""

import contextlib
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.docs.blocks import ROOT, Block, Group, matches
from tests.support.kafka import apache_kafka

COMMAND_TIMEOUT_S = 300
NOT_IN_CLONES = {".git", "build", "data", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
KAFKA_SCRIPTS = {
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-server-start.sh": "kafka.Kafka",
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "connect-mirror-maker.sh": "org.apache.kafka.connect.mirror.MirrorMaker",
}


class Machine(Protocol):
    """A fresh directory and the shell that runs there."""

    directory: Path
    """The directory of the group, as this process sees it."""

    def shell(self) -> Sequence[str]:
        """Return the command line of the shell, whose working directory is the directory of the group."""

    def environment(self) -> Mapping[str, str]:
        """Return the environment of the shell."""


def namespace_reason() -> str | None:
    """Return the reason for which this process cannot make namespaces, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "unshare or ip is not on PATH"
    tried = subprocess.run(["unshare", "--net", "--pid", "--fork", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"namespaces cannot be made here: {tried.stderr.strip()}"


class Namespace:
    """The quick form: this environment's programs on a network and among processes of their own."""

    def __init__(self, directory: Path, group: Group) -> None:
        self.directory = directory
        if "checkout" in group.options:
            for path in ROOT.iterdir():
                if path.name not in NOT_IN_CLONES:
                    (directory / path.name).symlink_to(path)
        if "kafka" in group.needs:
            write_kafka_scripts(directory / "kafka" / "bin", kafka_jars())

    def shell(self) -> Sequence[str]:
        own = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
        return (*own, "bash", "-c", "ip link set lo up && exec bash --norc --noprofile")

    def environment(self) -> Mapping[str, str]:
        programs = os.fspath(Path(sys.executable).parent)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "OTTLA_"))}
        return {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": os.fspath(ROOT)}


def kafka_jars() -> Path:
    """Return a directory with the jars of Apache Kafka's server, tools and MirrorMaker."""
    jars = ROOT / "build" / "kafka" / "docs-jars"
    if not (jars / ".resolved").exists():
        jars.mkdir(parents=True, exist_ok=True)
        pom = ROOT / "tests" / "docs" / "mirror_maker.pom.xml"
        command = ["mvn", "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={jars}"], check=True)
        for jar in apache_kafka.JARS.glob("*.jar"):
            shutil.copy(jar, jars)
        (jars / ".resolved").touch()
    return jars


def write_kafka_scripts(directory: Path, jars: Path) -> None:
    """Write scripts with the names of Apache Kafka's that run its main classes from the jars."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, main in KAFKA_SCRIPTS.items():
        script = directory / name
        command = f"exec java -Xmx384m -cp '{jars}/*' {main} \"$@\" 2> >(grep -v ^SLF4J >&2)"  # no logger is needed
        script.write_text(f"#!/bin/bash\n{command}\n")
        script.chmod(0o755)


class Session:
    """A shell on a machine that runs the blocks of a group; a context manager that ends all its processes."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._outputs = machine.directory / ".outputs"
        self._outputs.mkdir()
        self._count = 0
        self._answers: queue.Queue[str] = queue.Queue()
        self._shell = subprocess.Popen(
            machine.shell(),
            cwd=machine.directory,
            env=dict(machine.environment()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._interrupt()
        self._shell.kill()
        self._shell.wait()
        self._reader.join(10)
        for pipe in (self._shell.stdin, self._shell.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def run(self, block: Block) -> None:
        """Run a block or write its file. Raises AssertionError with the output of a command that fails."""
        if block.kind == "file":
            (self.machine.directory / block.subject.split()[1]).write_text(block.text)
            return
        if "after Ctrl-C" in block.options:
            self._interrupt()
        if block.language == "python":
            name = f"block_{block.line}.py"
            (self.machine.directory / name).write_text(block.text)
            self._run(block, f"python {name}", "")
            return
        assert block.language == "console", f"{block}: {block.language} blocks cannot run"
        *commands, last = block.commands()
        for command in commands:
            self._run(block, command.text, command.output)
        if block.until is None:
            self._run(block, last.text, last.output)
        else:
            self._start(block, last.text, block.until)

    def _run(self, block: Block, command: str, expected: str) -> None:
        output = self._next_output()
        self._send(f"{{\n{command}\n}} > .outputs/{output.name} 2>&1 < /dev/null; echo $?")
        try:
            code = self._answers.get(timeout=COMMAND_TIMEOUT_S)
        except queue.Empty:
            code = f"nothing within {COMMAND_TIMEOUT_S} s"
        text = output.read_text(errors="replace")
        assert code == "0", f"{block}: {command}\nreturned {code}\n{text[-3000:]}{self._background_output()}"
        if expected:
            assert matches(expected, text), f"{block}: {command}\nprinted\n{text}\nand not\n{expected}"

    def _start(self, block: Block, command: str, until: str) -> None:
        output = self._next_output()
        self._send(f"set -m; {{\n{command}\n}} > .outputs/{output.name} 2>&1 < /dev/null & job=$!; set +m")
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while until not in output.read_text(errors="replace") if output.exists() else True:
            if time.monotonic() > deadline:
                text = output.read_text(errors="replace")
                raise AssertionError(f"{block}: {command}\ndid not print {until!r} but\n{text[-3000:]}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._shell.wait(0.05)
                raise AssertionError(f"{block}: the shell ended")

    def _interrupt(self) -> None:
        """Send SIGINT to the newest background command, and wait for its end."""
        self._send('[ -z "$job" ] || { kill -INT -"$job" 2> /dev/null; wait "$job" 2> /dev/null; job=; }; echo $?')
        with contextlib.suppress(queue.Empty):
            self._answers.get(timeout=60)

    def _send(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self._answers.put(line.strip())

    def _next_output(self) -> Path:
        self._count += 1
        return self._outputs / str(self._count)

    def _background_output(self) -> str:
        paths = sorted(self._outputs.iterdir(), key=lambda path: int(path.name))[:-1]
        return "".join(
            f"\n--- earlier output {each.name}\n{each.read_text(errors='replace')[-1500:]}" for each in paths
        )
