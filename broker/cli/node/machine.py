"""`ottla start --brokers N`: several brokers on one machine as one unit, a process each.

Derives the configurations, starts and watches the processes, passes their output on, answers for their health at the
configured HTTP listener, and restarts them one after another at SIGHUP.
"""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.cli.node.secret_settings import node_command, write_secrets
from broker.cli.shared.failure import CommandFailed
from broker.config.broker_config import BrokerConfig
from broker.config.co_located import broker_directory, check_derivable, co_located_settings
from broker.config.environment import CLUSTER_ID
from broker.config.errors import ConfigError
from broker.config.exposure import override_warnings
from broker.config.load import load_config
from broker.logs import EventLog, LogFormat
from broker.net.listening import ListenError
from broker.node.http import build_http
from broker.supervisor.cluster_supervisor import ClusterSupervisor
from broker.supervisor.layout import LocalNode
from broker.supervisor.machine_health import MachineHealth, Member
from broker.supervisor.node_supervisor import NodeDidNotStart, NotPrepared
from broker.supervisor.standard_output import StandardOutput
from broker.supervisor.status_report import StatusReport
from protocol.primitives import uuid_to_text
from storage.directories.formatting import is_formatted, random_id
from storage.directories.meta_properties import META_PROPERTIES_FILE, read_meta_properties
from storage.errors import StorageError
from storage.files import OsFileSystem

_LOG: Final = EventLog("ottla.machine")


class MachineOptions(NamedTuple):
    """The command line of `ottla start --brokers`."""

    config_file: str | None
    overrides: Sequence[str]
    brokers: int
    log_format: LogFormat
    log_level: str


class Machine(NamedTuple):
    """The configuration of a machine, and for each of its brokers the derived settings and the whole configuration."""

    config: BrokerConfig
    settings: Sequence[Mapping[str, str]]
    brokers: Sequence[BrokerConfig]


def load_machine(config_file: str | None, overrides: Sequence[str], environ: Mapping[str, str], count: int) -> Machine:
    """Load the configuration and derive that of each broker. Raise CommandFailed."""
    try:
        config, _ = load_config(config_file, overrides, environ)
        check_derivable(config, count)
        settings = [co_located_settings(config, index, machine=socket.gethostname()) for index in range(count)]
        brokers = [load_config(config_file, [*overrides, *_texts(each)], environ)[0] for each in settings]
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error
    return Machine(config, settings, brokers)


def run_machine(options: MachineOptions) -> None:
    """Run the brokers until SIGINT or SIGTERM. Raise CommandFailed."""
    import uvloop

    machine = load_machine(options.config_file, options.overrides, os.environ, options.brokers)
    for warning in override_warnings(options.overrides):  # the brokers log all other warnings
        _LOG.warning(warning)
    try:
        _check_directories(machine, options)
        nodes = [_node(machine, index, options) for index in range(options.brokers)]
        uvloop.run(_run(machine, nodes))
    except (NodeDidNotStart, ListenError, StorageError) as error:
        raise CommandFailed(f"{str(error).rstrip('.')}.") from error
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error
    except OSError as error:
        raise CommandFailed(f"cannot use {error.filename}: {error.strerror}.") from error


async def _run(machine: Machine, nodes: Sequence[LocalNode]) -> None:
    health = MachineHealth([_member(config) for config in machine.brokers])
    http = build_http(machine.config, health.routes())
    supervisor = ClusterSupervisor(
        nodes,
        StatusReport(nodes, _LOG.info),
        _prepare,
        restart=True,
        log_of=lambda _node: StandardOutput(),
        settle=health.settle,
    )
    if http is None:
        await supervisor.run()
        return
    http.server.open()
    watching = asyncio.ensure_future(http.watch())
    try:
        await http.server.start()
        _LOG.info("The health of all brokers is served", url=f"{http.server.url}/health/ready")
        await supervisor.run()
    finally:
        watching.cancel()
        http.server.close()


def _check_directories(machine: Machine, options: MachineOptions) -> None:
    """Refuse a directory of a single broker, and unformatted ones without a cluster id. Give a new machine an id."""
    fs = OsFileSystem()
    for path in machine.config.log_dirs:
        if (Path(path) / META_PROPERTIES_FILE).exists():
            raise CommandFailed(
                f"log.dirs: {path} holds the data of a single broker; move its files to {broker_directory(path, 0)} "
                "or use another directory."
            )
    unformatted = [each for each in machine.brokers if not is_formatted(fs, each.metadata_log_dir)]
    if not unformatted or os.environ.get(CLUSTER_ID):
        return
    if not machine.config.lone:
        raise CommandFailed(
            f"log.dirs: {unformatted[0].metadata_log_dir} is not formatted; run `ottla storage format --config "
            f"{options.config_file or 'FILE'} --cluster-id ID --brokers {options.brokers}` first."
        )
    found = (read_meta_properties(fs, each.metadata_log_dir) for each in machine.brokers if each not in unformatted)
    known = next((meta.cluster_id for meta in found if meta is not None and meta.cluster_id), None)
    os.environ[CLUSTER_ID] = known or uuid_to_text(random_id())  # the brokers format themselves with it


def _prepare(node: LocalNode) -> None:
    try:
        node.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotPrepared(f"cannot use {error.filename}: {error.strerror}.") from error


def _node(machine: Machine, index: int, options: MachineOptions) -> LocalNode:
    config = machine.brokers[index]
    directory = Path(config.metadata_log_dir)
    settings = [*options.overrides, *_texts(machine.settings[index])]
    write_secrets(directory, settings)
    more = ("--log-format", options.log_format, "--log-level", options.log_level, "--log-node-id")
    file = () if options.config_file is None else (options.config_file,)
    listener = config.advertised_listeners[0]
    http = _member(config)
    scheme = "https" if http.tls else "http"
    url = None if http.listener is None else f"{scheme}://{http.listener}"
    return LocalNode(
        config.node_id,
        directory,
        f"{listener.host}:{listener.port}",
        url,
        (*node_command(directory, settings), *more, *file),
    )


def _member(config: BrokerConfig) -> Member:
    http = config.http_listener
    listener = None
    if http is not None and http.port:
        listener = f"[{http.host}]:{http.port}" if ":" in http.host else f"{http.host}:{http.port}"
    return Member(config.node_id, listener, bool(config.value("ottla.http.ssl.keystore.location")))


def _texts(settings: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]
