"""`ottla cluster`: a local cluster, one process per node, watched over by this one.

A node that exits is started again; a node that never got as far as serving clients ends the command with what it said.
What nodes print goes to DIR/node-N/ottla.log.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from broker.cli.failure import CommandFailed

HOST = "127.0.0.1"
PORT_STEP = 10
POLL_SECONDS = 0.05
STOP_SECONDS = 30
RESTART_SECONDS = 1.0
MAX_RESTART_SECONDS = 10.0
LOG_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster: `index` counts from 0, ids from 1."""

    index: int
    directory: Path
    port: int
    http_port: int
    overrides: tuple[str, ...]

    @property
    def id(self) -> int:
        return self.index + 1

    @property
    def pid_file(self) -> Path:
        return self.directory / "ottla.pid"

    @property
    def log_file(self) -> Path:
        return self.directory / "ottla.log"

    def settings(self) -> list[str]:
        """The node's configuration as KEY=VALUE; the user's come last and win."""
        controller = f"{HOST}:{self.port + 1}"
        return [
            "process.roles=broker,controller",
            f"node.id={self.id}",
            f"listeners=PLAINTEXT://{HOST}:{self.port},CONTROLLER://{controller}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.bootstrap.servers={controller}",
            f"log.dirs={self.directory / 'data'}",
            f"ottla.http.listener={HOST}:{self.http_port}",
            *self.overrides,
        ]

    def command(self) -> list[str]:
        overrides = [part for setting in self.settings() for part in ("--override", setting)]
        return [sys.executable, "-m", "broker", "start", *overrides]


@click.command("cluster", short_help="Run a local cluster, one process per node.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="How many nodes.")
@click.option("--dir", "directory", default="./data", show_default=True, metavar="DIR", help="Where their data goes.")
@click.option(
    "--port", type=click.IntRange(1, 65525), default=9092, show_default=True, help="Of the first node's clients."
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    default=9644,
    show_default=True,
    help="Of the first node's health and metrics; 0 picks free ones.",
)
@click.option("--no-restart", is_flag=True, help="Leave a node that exits alone.")
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting for every node.")
def cluster(
    nodes: int, directory: str, port: int, http_port: int, no_restart: bool, overrides: tuple[str, ...]
) -> None:
    """Run a local cluster until it is told to stop."""
    if nodes > 1:
        raise CommandFailed("Clusters of several nodes have not landed in this version yet: --nodes 1 is there.")
    root = Path(directory)
    members = [
        Node(
            index,
            root / f"node-{index}",
            port + PORT_STEP * index,
            http_port + index if http_port else _free_port(),
            overrides,
        )
        for index in range(nodes)
    ]
    for node in members:
        _prepare(node)
    failure = asyncio.run(_Supervisor(members, restart=not no_restart).run())
    if failure is not None:
        raise CommandFailed(failure)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _prepare(node: Node) -> None:
    """Formats the node's directory at the first start. Raises CommandFailed."""
    from broker.cli.node_format import format_node
    from broker.config.errors import ConfigError
    from broker.config.load import load_config
    from broker.metadata.features import bootstrap_records
    from protocol.primitives import uuid_to_text
    from storage.files import OsFileSystem
    from storage.formatting import is_formatted, random_id

    try:
        config, _ = load_config(None, node.settings(), {})
        node.directory.mkdir(parents=True, exist_ok=True)
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error
    except OSError as error:
        raise CommandFailed(f"cannot make {node.directory}: {error.strerror}.") from error
    if not is_formatted(OsFileSystem(), config.metadata_log_dir):
        format_node(config, uuid_to_text(random_id()), bootstrap_records(), standalone=True)


class _Supervisor:
    """Runs the nodes' processes until a signal, or until one never starts."""

    def __init__(self, nodes: Sequence[Node], *, restart: bool) -> None:
        self._nodes = nodes
        self._restart = restart
        self._stopping = asyncio.Event()
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._lives_from: dict[int, int] = {}
        self._failure: str | None = None

    async def run(self) -> str | None:
        """None after an orderly stop, otherwise why it ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        async with asyncio.TaskGroup() as group:
            for node in self._nodes:
                group.create_task(self._keep(node))
            group.create_task(self._announce())
            group.create_task(self._stop_all())
        return self._failure

    async def _announce(self) -> None:
        """A line per node once it serves, then the address for clients."""
        for node in self._nodes:
            if not await self._wait_until_serving(node):
                return
            pid = self._processes[node.id].pid
            click.echo(
                f"node {node.id}  {HOST}:{node.port}  http://{HOST}:{node.http_port}  pid {pid}  {node.directory}"
            )
        click.echo(f"bootstrap server: {','.join(f'{HOST}:{node.port}' for node in self._nodes)}")

    async def _wait_until_serving(self, node: Node) -> bool:
        """Waits for the node's own word: that somebody listens on its port proves nothing."""
        while not self._stopping.is_set():
            if node.id in self._processes and _says_started(node, self._lives_from[node.id]):
                return True
            await self._rest(POLL_SECONDS)
        return False

    async def _keep(self, node: Node) -> None:
        """Starts the node, and again whenever it exits."""
        pause = RESTART_SECONDS
        while not self._stopping.is_set():
            started = asyncio.get_running_loop().time()
            has_served = await self._run_once(node)
            if self._stopping.is_set():
                return
            if not has_served:
                self._failure = f"node {node.id} did not start: {_last_words(node.log_file)}"
                self._stopping.set()
                return
            click.echo(f"node {node.id} has exited: {_last_words(node.log_file)}", err=True)
            if not self._restart:
                return
            long_lived = asyncio.get_running_loop().time() - started > MAX_RESTART_SECONDS
            pause = RESTART_SECONDS if long_lived else min(2 * pause, MAX_RESTART_SECONDS)
            await self._rest(pause)

    async def _run_once(self, node: Node) -> bool:
        """One life of the process; whether it ever served clients (or had done so in an earlier life)."""
        with node.log_file.open("ab") as output:
            output_starts = output.tell()
            process = await asyncio.create_subprocess_exec(
                *node.command(), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
            )
        earlier = node.id in self._processes
        self._processes[node.id] = process
        self._lives_from[node.id] = output_starts
        _write_pid(node, process.pid)
        served = asyncio.create_task(self._wait_until_serving(node))
        try:
            await process.wait()
        finally:
            node.pid_file.unlink(missing_ok=True)
            served.cancel()
        return earlier or (served.done() and not served.cancelled() and served.result())

    async def _stop_all(self) -> None:
        """Tells every node to stop, together, once it is time; kills what does not."""
        await self._stopping.wait()
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()

    async def _rest(self, seconds: float) -> None:
        """Sleeps, unless it is time to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return


def _says_started(node: Node, since: int) -> bool:
    """Whether the node's output has, from byte `since` on, the line that says it serves clients."""
    with node.log_file.open("rb") as file:
        file.seek(since)
        return f"[KafkaServer id={node.id}] started".encode() in file.read()


def _write_pid(node: Node, pid: int) -> None:
    aside = node.pid_file.with_suffix(".tmp")
    aside.write_text(f"{pid}\n")
    os.replace(aside, node.pid_file)


def _last_words(log_file: Path) -> str:
    """The last line of a node's output, without what `ottla start` puts before a sentence."""
    with log_file.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("Error: ") if lines else "it said nothing."
