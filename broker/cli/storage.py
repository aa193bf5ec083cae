"""`ottla storage`: Kafka's kafka-storage. Formats log directories, shows their properties, generates ids."""

from collections.abc import Mapping, Sequence

import click

from broker.cli.node.format import format_node
from broker.cli.node.initial_controllers import (
    DYNAMIC_QUORUM,
    STATIC_QUORUM,
    InitialController,
    own_controller,
    parse_initial_controllers,
)
from broker.cli.node.machine import load_machine
from broker.cli.node.scram_credential import scram_record
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import json_option, key_value
from broker.cli.shared.output import print_json
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.load import load_config
from broker.metadata.image.features import KRAFT_VERSION, SUPPORTED_FEATURES, bootstrap_records, feature_record
from broker.metadata.image.metadata_version import LATEST_METADATA_VERSION, METADATA_VERSION, MetadataVersion
from broker.metadata.image.records import VersionedRecord
from protocol.messages.metadata_records import FeatureLevelRecord
from protocol.primitives import uuid_to_text
from storage.directories.formatting import is_cluster_id, random_id
from storage.directories.meta_properties import MetaProperties, check_together, read_meta_properties
from storage.errors import StorageError
from storage.files import OsFileSystem


@click.group("storage", short_help="Format log directories, or show their properties.")
def storage() -> None:
    """Format log directories, or show their properties (kafka-storage)."""


@storage.command("random-uuid")
@json_option
def random_uuid(as_json: bool) -> None:
    """Print a random id for a new cluster."""
    text = uuid_to_text(random_id())
    if as_json:
        print_json({"uuid": text})
    else:
        click.echo(text)


@storage.command("format")
@click.option("--config", "-c", "config_file", required=True, metavar="FILE", help="Configuration of the node.")
@click.option("--cluster-id", "-t", required=True, metavar="ID", help="Id of the cluster, from random-uuid.")
@click.option("--ignore-formatted", "-g", is_flag=True, help="Skip directories that are already formatted.")
@click.option("--release-version", "-r", metavar="VERSION", help="The initial metadata.version, such as 4.2-IV1.")
@click.option("--feature", "-f", "features", multiple=True, metavar="NAME=LEVEL", help="A feature and its level.")
@click.option("--standalone", "-s", is_flag=True, help="Start a dynamic quorum with this controller as its voter.")
@click.option("--no-initial-controllers", "-N", is_flag=True, help="Join an existing dynamic quorum.")
@click.option(
    "--initial-controllers",
    "-I",
    metavar="ID@HOST:PORT:DIRECTORY,…",
    help="Start a dynamic quorum with these controllers as its voters.",
)
@click.option("--add-scram", "-S", multiple=True, metavar="CREDENTIAL", help="An initial SCRAM credential.")
@click.option(
    "--brokers", type=click.IntRange(min=1), metavar="N", help="Format for N brokers (`ottla start --brokers N`)."
)
def format_(
    config_file: str,
    cluster_id: str,
    ignore_formatted: bool,
    release_version: str | None,
    features: tuple[str, ...],
    standalone: bool,
    no_initial_controllers: bool,
    initial_controllers: str | None,
    add_scram: tuple[str, ...],
    brokers: int | None,
) -> None:
    """Format the log directories of a node, or of all brokers of a machine."""
    chosen = _quorum_option(standalone, no_initial_controllers, initial_controllers)
    if not is_cluster_id(cluster_id):
        raise CommandFailed(
            f"Cluster ID string {cluster_id} does not appear to be a valid UUID; use `ottla storage random-uuid`."
        )
    config, *others = _load_all(config_file, brokers)
    _check_quorum(config, chosen)
    levels = _levels(features)
    voters = _voters(config, initial_controllers, standalone=standalone)
    _check_kraft_version(levels.pop(KRAFT_VERSION, None), config, chosen)
    version, records = initial_records(release_version, levels)
    records += [scram_record(argument) for argument in add_scram]
    _check_supports(version, dynamic=bool(voters), scram=bool(add_scram))
    formatted = format_node(config, cluster_id, records, voters=voters, ignore_formatted=ignore_formatted)
    new = list(formatted.new)
    for other in others:  # brokers only, which find the quorum by their configuration
        new += format_node(other, cluster_id, records, ignore_formatted=ignore_formatted).new
    if not new:
        click.echo("All of the log directories are already formatted.")
    for path in new:
        kind = _kind(config, voters) if path == config.metadata_log_dir else "data"
        click.echo(f"Formatting {kind} directory {path} with metadata.version {version.release}.")


def _quorum_option(standalone: bool, join: bool, initial_controllers: str | None) -> str | None:
    """Return the option that determines the quorum, if any. Raises UsageError for several."""
    given = {
        "--standalone": standalone,
        "--no-initial-controllers": join,
        "--initial-controllers": initial_controllers is not None,
    }
    chosen = [name for name, is_set in given.items() if is_set]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other.")
    return chosen[0] if chosen else None


def _check_quorum(config: BrokerConfig, chosen: str | None) -> None:
    """Check for static voters or a dynamic quorum, not both, and not neither on a controller. Raises CommandFailed."""
    if config.voters and chosen in ("--standalone", "--initial-controllers"):
        raise CommandFailed(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    if chosen == "--standalone" and not config.is_controller:
        raise CommandFailed("You can only use --standalone on a controller.")
    if config.is_controller and chosen is None and not config.voters:
        raise CommandFailed(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )


def _check_kraft_version(requested: int | None, config: BrokerConfig, chosen: str | None) -> None:
    """Check a requested kraft.version, which follows from the kind of quorum. Raises CommandFailed.

    A node that joins a quorum takes over its level (KAFKA-19719): it is formatted without one, but 0 is an error.
    """
    dynamic = chosen is not None and not config.voters
    if requested == STATIC_QUORUM and dynamic:
        raise CommandFailed(
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone, "
            "--initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try "
            "removing the --feature flag for kraft.version."
        )
    if requested == DYNAMIC_QUORUM and not dynamic:
        raise CommandFailed(
            "Cannot set kraft.version to 1 unless controller.quorum.voters is empty and one of the flags "
            "--standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers "
            "support, try using one of --standalone, --initial-controllers, or --no-initial-controllers and removing "
            "controller.quorum.voters."
        )


def _check_supports(version: MetadataVersion, *, dynamic: bool, scram: bool) -> None:
    """Raise CommandFailed if the release cannot store the metadata."""
    if dynamic and version < MetadataVersion.IV_3_9_0:
        raise CommandFailed(f"A dynamic quorum requires metadata.version 3.9-IV0 or later, not {version.release}.")
    if scram and version < MetadataVersion.IV_3_5_2:
        raise CommandFailed(
            f"SCRAM is only supported in metadata.version 3.5-IV2 or later, and this is {version.release}."
        )


def _voters(
    config: BrokerConfig, initial_controllers: str | None, *, standalone: bool
) -> tuple[InitialController, ...]:
    if standalone:
        return (own_controller(config, random_id()),)
    return () if initial_controllers is None else parse_initial_controllers(initial_controllers)


def _kind(config: BrokerConfig, voters: Sequence[InitialController]) -> str:
    """Return the role of the metadata directory in the quorum, as Kafka prints it."""
    if not voters:
        return "metadata"
    is_voter = any(each.id == config.node_id for each in voters)
    return "dynamic metadata voter" if is_voter else "dynamic metadata"


def initial_records(release: str | None, levels: Mapping[str, int]) -> tuple[MetadataVersion, list[VersionedRecord]]:
    """Return the metadata.version and the initial records of a cluster. `levels` are the requested feature levels.

    Raises CommandFailed or UsageError.
    """
    if release is not None and METADATA_VERSION in levels:
        raise click.UsageError("--release-version and --feature metadata.version exclude each other.")
    version = LATEST_METADATA_VERSION if release is None else parse_release(release)
    version = MetadataVersion(levels.get(METADATA_VERSION, version))
    requested = {name: level for name, level in levels.items() if name != METADATA_VERSION}
    kept = [record for record in bootstrap_records(version) if _feature_name(record) not in requested]
    return version, kept + [feature_record(name, level) for name, level in sorted(requested.items()) if level]


def _levels(features: Sequence[str]) -> dict[str, int]:
    return dict(_level(feature) for feature in features)


def _feature_name(record: VersionedRecord) -> str | None:
    return record.message.name if isinstance(record.message, FeatureLevelRecord) else None


def _level(text: str) -> tuple[str, int]:
    name, level = key_value(text, "--feature")
    supported = SUPPORTED_FEATURES.get(name)
    if supported is None:
        raise CommandFailed(f"Unsupported feature: {name}. Supported features are: {', '.join(SUPPORTED_FEATURES)}")
    if not level.isdigit() or int(level) not in supported:
        raise CommandFailed(
            f"Feature {name}: level {level} is not supported; use {supported.minimum} to {supported.maximum}."
        )
    return name, int(level)


def parse_release(text: str) -> MetadataVersion:
    """Parse "4.2-IV1", or "4.2" for the last level of that release. Raises CommandFailed."""
    matching = [version for version in MetadataVersion if text in (version.release, version.release.partition("-")[0])]
    if not matching:
        known = f"{min(MetadataVersion).release} to {max(MetadataVersion).release}"
        raise CommandFailed(f"Unknown metadata.version {text}. Supported metadata.version are: {known}")
    return max(matching)


@storage.command("info")
@click.option("--config", "-c", "config_file", required=True, metavar="FILE", help="Configuration of the node.")
@json_option
def info(config_file: str, as_json: bool) -> None:
    """Show the properties of a node's log directories."""
    config = _load(config_file)
    paths = list(dict.fromkeys([config.metadata_log_dir, *config.log_dirs]))
    try:
        found = {path: read_meta_properties(OsFileSystem(), path) for path in paths}
    except OSError as error:
        raise CommandFailed(f"cannot read {error.filename}: {error.strerror}.") from error
    except StorageError as error:
        raise CommandFailed(str(error)) from error
    problems = _problems(found)
    if as_json:
        directories = [{"path": path} | _properties(meta) for path, meta in found.items()]
        print_json({"directories": directories, "problems": problems})
    else:
        _print_info(found, problems)
    if problems:
        raise CommandFailed(problems[0])


def _problems(found: dict[str, MetaProperties | None]) -> list[str]:
    problems = [f"{path} is not formatted." for path, meta in found.items() if meta is None]
    try:
        check_together({path: meta for path, meta in found.items() if meta is not None})
    except StorageError as error:
        problems.append(str(error))
    return problems


def _properties(meta: MetaProperties | None) -> dict[str, object]:
    """Return the properties in the order of names, {} if the directory is not formatted."""
    if meta is None:
        return {}
    directory_id = None if meta.directory_id is None else uuid_to_text(meta.directory_id)
    return {
        "cluster.id": meta.cluster_id,
        "directory.id": directory_id,
        "node.id": meta.node_id,
        "version": meta.version,
    }


def _print_info(found: dict[str, MetaProperties | None], problems: list[str]) -> None:
    click.echo("Found log directory:" if len(found) == 1 else "Found log directories:")
    for path in found:
        click.echo(f"  {path}")
    click.echo()
    for meta in found.values():
        if meta is not None:
            shown = ", ".join(f"{name}={value}" for name, value in _properties(meta).items() if value is not None)
            click.echo(f"Found metadata: {{{shown}}}")
    click.echo()
    if problems:
        click.echo("Found problem:" if len(problems) == 1 else "Found problems:")
        for problem in problems:
            click.echo(f"  {problem}")
        click.echo()


def _load_all(path: str, brokers: int | None) -> Sequence[BrokerConfig]:
    """Load the configuration of the node, or those of all brokers of its machine. Raises CommandFailed."""
    return [_load(path)] if brokers is None else load_machine(path, (), {}, brokers).brokers


def _load(path: str) -> BrokerConfig:
    """Load the configuration. Raises CommandFailed."""
    try:
        return load_config(path, (), {})[0]
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error
