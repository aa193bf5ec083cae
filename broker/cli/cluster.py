"""`ottla cluster`: a local cluster in the foreground. Plans and formats the nodes; the supervisor runs them.

The commands below it query a running cluster, as Kafka's kafka-cluster does.
"""

import contextlib
import datetime
import os
from collections.abc import Sequence
from pathlib import Path

import click
import uvloop
from click.core import ParameterSource

from broker.cli.admin.cluster_queries import cluster_id, list_endpoints, unregister
from broker.cli.node.local_cluster import LocalCluster
from broker.cli.node.scram_credential import scram_record
from broker.cli.node.secret_rotation import await_reload
from broker.cli.node.secret_rotation import rotate_secrets as rotate_secrets_of
from broker.cli.node.secret_settings import node_command, write_secrets
from broker.cli.node.secure_cluster import SecureDirectory
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import forbid
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.exposure import exposure_warnings, override_warnings
from broker.config.load import load_config
from broker.metadata.image.records import VersionedRecord
from broker.supervisor.cluster_supervisor import ClusterSupervisor
from broker.supervisor.layout import HOST, PORT_STEP, LocalNode, node_layout
from broker.supervisor.node_supervisor import NodeDidNotStart
from broker.supervisor.orphaned_node import wait_until_free
from broker.supervisor.secure_settings import ADMIN, SECURE_DIRECTORY, TRUST_FILE, secure_node_settings
from broker.supervisor.status_report import StatusReport
from storage.files import FileLock, FileSystem, OsFileSystem

LOCK_FILE = ".lock"
LAST_PORT = 65535


@click.group("cluster", invoke_without_command=True, short_help="Run a local cluster, or query a running one.")
@click.option("--nodes", type=click.IntRange(min=1), default=3, show_default=True, help="Number of nodes.")
@click.option("--dir", "directory", default="./data", show_default=True, metavar="DIR", help="Data directory.")
@click.option(
    "--port", type=click.IntRange(1, 65534), default=9092, show_default=True, help="Client port of the first node."
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    default=9644,
    show_default=True,
    help="Port of the first node's health and metrics; 0 lets each node pick a free port.",
)
@click.option("--no-restart", is_flag=True, help="Do not restart a node that exits.")
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting for every node.")
@click.option("--secure", is_flag=True, help="Require TLS and SCRAM; let in the super user of DIR/secure only.")
@click.option(
    "--rotate-secrets",
    is_flag=True,
    help="Renew password and certificates of the cluster that runs in DIR.",
)
@click.option("--new-authority", is_flag=True, help="With --rotate-secrets: also make a new certificate authority.")
@click.pass_context
def cluster(
    context: click.Context,
    nodes: int,
    directory: str,
    port: int,
    http_port: int,
    no_restart: bool,
    overrides: tuple[str, ...],
    secure: bool,
    rotate_secrets: bool,
    new_authority: bool,
) -> None:
    """Run a local cluster until SIGINT or SIGTERM.

    Node N uses DIR/node-N for its data, its process id (ottla.pid) and its output (ottla.log). With --secure,
    DIR/secure holds keys, certificates and the client.properties of the super user.

    With a command below, query a running cluster instead (kafka-cluster).
    """
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        return
    security = SecureDirectory(Path(directory).absolute() / SECURE_DIRECTORY)
    if rotate_secrets:
        _rotate(security, with_authority=new_authority)
        return
    forbid({"new-authority": new_authority}, "--rotate-secrets")
    _check_ports(nodes, port, http_port)
    _check_security(security, Path(directory), secure=secure)
    http_ports = [http_port + index if http_port else 0 for index in range(nodes)]
    places = [node_layout(index, Path(directory), port, dict(enumerate(http_ports))) for index in range(nodes)]
    settings = [
        each.settings([*(secure_node_settings(each, security.path) if secure else ()), *overrides]) for each in places
    ]
    configs = _load(settings)
    members = [
        _member(each.directory, config, node_command(each.directory, of_node))
        for each, config, of_node in zip(places, configs, settings, strict=True)
    ]
    for warning in [*override_warnings(overrides), *exposure_warnings(configs[0])]:
        click.echo(f"Warning: {warning}", err=True)
    fs = OsFileSystem()
    by_id: dict[int, BrokerConfig] = {config.node_id: config for config in configs}
    if len(by_id) < nodes:
        raise CommandFailed("--override node.id: the nodes of a cluster need different ids; remove the override.")
    with contextlib.closing(_Claim(Path(directory))):
        _warn_of_absent(Path(directory), nodes)
        for each, of_node in zip(places, settings, strict=True):
            write_secrets(each.directory, of_node)
        for config in configs:
            _wait_for_predecessor(fs, config)
        local = LocalCluster(fs, Path(directory), by_id, _credentials(security, configs) if secure else ())
        try:
            uvloop.run(_supervise(members, local, restart=not no_restart))
        except NodeDidNotStart as failure:
            raise CommandFailed(str(failure)) from failure


for _query in (cluster_id, unregister, list_endpoints):
    cluster.add_command(_query)


def _refuse_options_before(context: click.Context) -> None:
    """Raise UsageError for an option of the local cluster before a command that queries a running cluster."""
    for name in context.params:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(each.opts[0] for each in context.command.params if each.name == name)
            raise click.UsageError(
                f"{option} starts a local cluster and does not go with {context.invoked_subcommand}."
            )


def _check_security(security: SecureDirectory, directory: Path, *, secure: bool) -> None:
    """Refuse to open a secure cluster, and to secure an open one, whose metadata lacks the super user."""
    if security.is_complete() and not secure:
        raise CommandFailed(f"{directory} holds a secure cluster; start it with --secure.")
    if secure and not security.is_complete() and any(directory.glob("node-*/data/meta.properties")):
        raise CommandFailed(f"{directory} holds a cluster without --secure; use another --dir.")


def _credentials(security: SecureDirectory, configs: Sequence[BrokerConfig]) -> list[VersionedRecord]:
    """Make keys, certificates and settings of clients; return the records of the super user. Raises CommandFailed."""
    try:
        credential = security.prepare(configs, datetime.datetime.now(datetime.UTC))
    except OSError as error:
        raise CommandFailed(f"cannot use {error.filename}: {error.strerror}.") from error
    click.echo(f"client settings: {security.client_file}")
    click.echo(f"console: log in as {ADMIN} with the password in {security.password_file}")
    return [scram_record(credential)]


def _rotate(security: SecureDirectory, *, with_authority: bool) -> None:
    try:
        nodes = rotate_secrets_of(security, datetime.datetime.now(datetime.UTC), with_authority=with_authority)
        late = await_reload(security)
    except OSError as error:
        raise CommandFailed(f"cannot use {error.filename}: {error.strerror}.") from error
    click.echo(f"The password in {security.client_file} and the certificates of {', '.join(nodes)} are renewed.")
    if late:
        click.echo(f"Warning: {', '.join(late)} did not load the new certificate; rotate again when it has.", err=True)
    if with_authority:
        click.echo(
            f"{security.path / TRUST_FILE} has a new authority beside the former one: give it to clients. The next "
            "rotation makes certificates of the new authority; the one after it ends the trust in the former one."
        )


def _check_ports(nodes: int, port: int, http_port: int) -> None:
    """Raise UsageError if the last node's port would exceed 65535."""
    last_of = {"--port": port + PORT_STEP * (nodes - 1) + 1, "--http-port": http_port + nodes - 1 if http_port else 0}
    for option, last in last_of.items():
        if last > LAST_PORT:
            raise click.UsageError(f"{option} is too high for {nodes} nodes: the last node would need port {last}.")


async def _supervise(members: Sequence[LocalNode], local: LocalCluster, *, restart: bool) -> None:
    await ClusterSupervisor(members, StatusReport(members, click.echo), local.prepare, restart=restart).run()


def _warn_of_absent(directory: Path, nodes: int) -> None:
    """Warn of more node directories than started nodes: a quorum without a majority has no controller."""
    if (directory / f"node-{nodes}" / "data").exists():
        click.echo(
            f"Warning: {directory} has more than {nodes} nodes; voters that are not started cannot vote.", err=True
        )


def _wait_for_predecessor(fs: FileSystem, config: BrokerConfig) -> None:
    """Wait for a node that is still stopping, after its supervisor was killed. Raises CommandFailed."""
    try:
        if fs.exists(config.metadata_log_dir):
            wait_until_free(fs, config.metadata_log_dir)
    except OSError as error:
        raise CommandFailed(f"cannot use {error.filename}: {error.strerror}.") from error


def _load(settings: Sequence[Sequence[str]]) -> list[BrokerConfig]:
    """Return each node's configuration from its settings and the environment; print each warning once."""
    try:
        loaded = [load_config(None, of_node, os.environ) for of_node in settings]
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error
    for warning in dict.fromkeys(warning for _, warnings in loaded for warning in warnings):
        click.echo(f"Warning: {warning}", err=True)
    return [config for config, _ in loaded]


def _member(directory: Path, config: BrokerConfig, command: tuple[str, ...]) -> LocalNode:
    listener, http = config.advertised_listeners[0], config.http_listener
    scheme = "https" if config.value("ottla.http.ssl.keystore.location") else "http"
    return LocalNode(
        id=config.node_id,
        directory=directory,
        address=f"{listener.host or HOST}:{listener.port}",
        http_url=None if http is None or not http.port else f"{scheme}://{http.host or HOST}:{http.port}",
        command=command,
    )


class _Claim:
    """Exclusive use of DIR. Raises CommandFailed if another supervisor uses it: both would write pid files and logs."""

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock: FileLock = OsFileSystem().lock(str(directory / LOCK_FILE))
        except BlockingIOError as error:
            raise CommandFailed(f"{directory} is in use by another `ottla cluster`.") from error
        except OSError as error:
            raise CommandFailed(f"cannot use {directory}: {error.strerror}.") from error

    def close(self) -> None:
        self._lock.release()
