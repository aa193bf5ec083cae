"""Apache Kafka as reference: jars from Maven, a single node as a process, and its tools as commands.

If something is missing on the machine (Java 17, Maven, a reachable registry), `unavailable_reason` returns the reason,
so that a test can skip with it instead of failing.
"""

import base64
import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.support.kafka import java_options

REPOSITORY = java_options.REPOSITORY
JARS = java_options.JARS
POM = REPOSITORY / "tests" / "interop" / "pom.xml"
START_TIMEOUT_S = 120
PORTS = (10_000, 32_000)
PORT_SHARES = 4


@cache
def unavailable_reason() -> str | None:
    """Return the reason for which Apache Kafka cannot run on this machine, or None once its jars are in `build/`."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"{program} is not on PATH"
    JARS.mkdir(parents=True, exist_ok=True)
    with (JARS / ".lock").open("w") as lock:  # concurrent writers corrupt Maven's repository
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (reason := _resolve()) is None:
            _write_class_archive()
        return reason


def _resolve() -> str | None:
    stamp = JARS / ".resolved"
    if stamp.exists() and stamp.stat().st_mtime >= POM.stat().st_mtime:
        return None
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(POM), "dependency:copy-dependencies"]
    resolved = subprocess.run([*command, f"-DoutputDirectory={JARS}"], capture_output=True, text=True, check=False)
    if resolved.returncode != 0:
        errors = [line for line in resolved.stdout.splitlines() if "ERROR" in line]
        return f"Maven could not resolve Apache Kafka's jars: {' '.join(errors)[:500]}"
    stamp.touch()
    return None


def _write_class_archive() -> None:
    client_port, controller_port = free_ports(2)
    with tempfile.TemporaryDirectory() as directory:
        settings = _settings(Path(directory), client_port, controller_port)
        java_options.write_archive({**settings, "offsets.topic.num.partitions": "1"}, f"127.0.0.1:{client_port}")


def java_command(main: str, *arguments: str, heap: str = "512m", options: Sequence[str] | None = None) -> list[str]:
    """Return the command line of one of Kafka's main classes (or a `.java` file in source mode).

    The options of Java are those for short runs by default; measurements pass `java_options.OPTIMIZED`.
    """
    options = java_options.quick() if options is None else options
    return ["java", f"-Xmx{heap}", *options, "-cp", f"{JARS}/*", main, *arguments]


def run_tool(
    main: str,
    *arguments: str,
    stdin: str | None = None,
    timeout_s: float = 300,
    options: Sequence[str] | None = None,
) -> str:
    """Run one of Kafka's tools and return its output; raise AssertionError with the output for a non-zero exit code."""
    done = subprocess.run(
        java_command(main, *arguments, heap="256m", options=options),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"{main} exited {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Return free ports for programs that cannot use port 0, each returned once only.

    The ports are outside of the system's ephemeral range, from which a connection could take a port while its program
    restarts.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.SystemRandom().choice(_share())
        if claim_ports(port):
            ports.append(port)
    return ports


def claim_ports(*ports: int) -> bool:
    """Reserve these ports, all or none, if they are free and not reserved yet.

    The reservation keeps them from other callers of `free_ports` until the program listens.
    """
    share = _share()
    if not _given.isdisjoint(ports) or not all(port in share for port in ports):
        return False
    with contextlib.ExitStack() as held:
        try:
            for port in ports:
                held.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            return False
    _given.update(ports)
    return True


_given: set[int] = set()


def _share() -> range:
    """Return the range of this process: concurrent test processes do not know each other's ports."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PORT_SHARES
    size = (PORTS[1] - PORTS[0]) // PORT_SHARES
    return range(PORTS[0] + worker * size, PORTS[0] + (worker + 1) * size)


def wait_for_port(port: int, process: subprocess.Popen[bytes], timeout_s: float = START_TIMEOUT_S) -> None:
    """Wait until the loopback port is open; raise if the process exits before."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"the process exited with {process.returncode} before it listened on {port}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.005)
    raise AssertionError(f"port {port} was not open within {timeout_s} s")


def random_uuid_text() -> str:
    """Return a random id in Kafka's format: 22 characters of URL-safe base64, without a leading dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


@contextlib.contextmanager
def apache_kafka(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    heap: str = "1g",
    options: Sequence[str] | None = None,
) -> Iterator[str]:
    """Run one combined node of Apache Kafka on loopback, formatted in `directory`; yield its bootstrap address.

    `options` are Java's, see `java_command`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    client_port, controller_port = free_ports(2)
    config = {**_settings(directory, client_port, controller_port), **(settings or {})}
    properties = directory / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    if not (directory / "data" / "meta.properties").exists():
        run_tool("kafka.tools.StorageTool", "format", "-t", random_uuid_text(), "-c", str(properties))
    with (directory / "kafka.log").open("ab") as output:
        command = java_command("kafka.Kafka", str(properties), heap=heap, options=options)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for_port(client_port, process)
        yield f"127.0.0.1:{client_port}"
    finally:
        stop(process)


def _settings(directory: Path, client_port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def stop(process: subprocess.Popen[bytes], sequence: Sequence[int] = (signal.SIGTERM, signal.SIGKILL)) -> None:
    """Send the signals one after another until the process ends."""
    for number in sequence:
        if process.poll() is None:
            os.kill(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
