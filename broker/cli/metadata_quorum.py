"""`ottla metadata-quorum`: Kafka's kafka-metadata-quorum, with an additional command `snapshot`."""

import time

import click

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import json_option, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.quorum_report import describe_quorum
from broker.cli.shared.target import Target, target_options
from broker.client import raise_for
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.load import load_config
from protocol.ids import LeaderEpoch
from protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from protocol.messages.create_metadata_snapshot import CreateMetadataSnapshotRequest, CreateMetadataSnapshotResponse
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.primitives import Uuid, uuid_from_text, uuid_to_text
from storage.directories.meta_properties import read_meta_properties
from storage.errors import StorageError
from storage.files import OsFileSystem
from storage.log_snapshots import CheckpointId, checkpoint_name


@click.group("metadata-quorum", short_help="Describe the metadata quorum, change its voters, create a snapshot.")
@target_options
@click.pass_context
def metadata_quorum(
    context: click.Context, bootstrap_server: str | None, bootstrap_controller: str | None, command_config: str | None
) -> None:
    """Describe the metadata quorum or change its voters (kafka-metadata-quorum), or create a snapshot on a node.

    For add-controller, --command-config is the configuration of the controller to add.
    """
    context.obj = Target.of(bootstrap_server, bootstrap_controller, command_config)


@metadata_quorum.command("describe")
@click.option("--status", is_flag=True, help="A short summary.")
@click.option("--replication", is_flag=True, help="Log end offset, lag and times of each voter and observer.")
@click.option("--human-readable", is_flag=True, help="Show times as ms ago.")
@json_option
@click.pass_obj
def describe(target: Target, status: bool, replication: bool, human_readable: bool, as_json: bool) -> None:
    """Describe the quorum."""
    action = one_action({"status": status, "replication": replication})
    if action == "status" and human_readable:
        raise click.UsageError("--human-readable requires --replication.")
    with target.open() as admin:
        report = admin.retrying(lambda: describe_quorum(admin))
    if action == "status":
        lines, document = report.status_lines(), report.status_document()
        print_json(document) if as_json else click.echo("\n".join(lines))
    elif as_json:
        print_json(report.replication_document())
    else:
        click.echo("\n".join(report.replication_lines(int(time.time() * 1000), readable=human_readable)))


@metadata_quorum.command("add-controller")
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@click.pass_obj
def add_controller(target: Target, dry_run: bool) -> None:
    """Make a running controller a voter. Its configuration is the file of --command-config."""
    config = _controller_config(target.command_config)
    directory_id = _directory_id(config)
    listeners = [
        Listener(each.name, each.host or "localhost", each.port) for each in config.advertised_controller_listeners
    ]
    shown = ", ".join(f"{each.name}://{each.host}:{each.port}" for each in listeners)
    what = f"controller {config.node_id} with directory id {uuid_to_text(directory_id)} and endpoints: {shown}"
    if dry_run:
        click.echo(f"DRY RUN of adding {what}")
        return
    with target.open() as admin:

        def attempt() -> None:
            request = AddRaftVoterRequest(
                admin.cluster_id(), admin.client.config.request_timeout_ms, config.node_id, directory_id, listeners
            )
            _check(admin.call(request, AddRaftVoterResponse))

        admin.retrying(attempt)
    click.echo(f"Added {what}")


@metadata_quorum.command("remove-controller")
@click.option("--controller-id", "-i", type=int, required=True, metavar="ID", help="The controller's node.id.")
@click.option(
    "--controller-directory-id", "-d", required=True, metavar="ID", help="Directory id of its metadata log directory."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@click.pass_obj
def remove_controller(target: Target, controller_id: int, controller_directory_id: str, dry_run: bool) -> None:
    """Remove a voter from the quorum."""
    if controller_id < 0:
        raise CommandFailed(f"Invalid negative --controller-id: {controller_id}")
    try:
        directory_id = uuid_from_text(controller_directory_id)
    except ValueError as error:
        raise CommandFailed(f"Failed to parse --controller-directory-id: {error}.") from error
    what = f"KRaft controller {controller_id} with directory id {controller_directory_id}"
    if dry_run:
        click.echo(f"DRY RUN of removing  {what}")
        return
    with target.open() as admin:

        def attempt() -> None:
            request = RemoveRaftVoterRequest(admin.cluster_id(), controller_id, directory_id)
            _check(admin.call(request, RemoveRaftVoterResponse))

        admin.retrying(attempt)
    click.echo(f"Removed {what}")


@metadata_quorum.command("snapshot")
@json_option
@click.pass_obj
def snapshot(target: Target, as_json: bool) -> None:
    """Create a metadata snapshot on the addressed node now, and print its SnapshotId."""
    with target.open() as admin:
        timeout_ms = admin.client.config.api_timeout_ms
        connection = admin.client.any()
        answer = connection.call(
            CreateMetadataSnapshotRequest(timeout_ms), CreateMetadataSnapshotResponse, timeout_ms=timeout_ms
        )
        raise_for(answer.error_code, "the snapshot", answer.error_message)
    file = checkpoint_name(CheckpointId(answer.end_offset, LeaderEpoch(answer.epoch)))
    if as_json:
        print_json({"endOffset": answer.end_offset, "epoch": answer.epoch, "file": file})
    else:
        click.echo(f"SnapshotId: {file.partition('.')[0]}")


def _check(answer: AddRaftVoterResponse | RemoveRaftVoterResponse) -> None:
    raise_for(answer.error_code, "the voters", answer.error_message)


def _controller_config(path: str | None) -> BrokerConfig:
    """Load the configuration of a controller. Raises CommandFailed."""
    if path is None:
        raise CommandFailed(
            "You must supply the configuration file of the controller you are adding: --command-config."
        )
    try:
        config, _ = load_config(path, (), {})
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error
    if not config.is_controller:
        raise CommandFailed(f"process.roles in {path} did not contain 'controller'.")
    return config


def _directory_id(config: BrokerConfig) -> Uuid:
    """Return the directory id in meta.properties of the metadata log directory. Raises CommandFailed."""
    directory = config.metadata_log_dir
    try:
        meta = read_meta_properties(OsFileSystem(), directory)
    except OSError as error:
        raise CommandFailed(f"cannot read {error.filename}: {error.strerror}.") from error
    except StorageError as error:
        raise CommandFailed(str(error)) from error
    if meta is None or meta.directory_id is None:
        raise CommandFailed(f"{directory}: meta.properties with a directory.id is missing; run `ottla storage format`.")
    if meta.node_id != config.node_id:
        raise CommandFailed(f"{directory} belongs to node {meta.node_id}, not to node {config.node_id}.")
    return meta.directory_id
