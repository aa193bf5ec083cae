"""`ottla storage`: Kafka's kafka-storage. Formats a node's directories, shows what is in them, makes ids."""

from collections.abc import Sequence

import click

from broker.cli.failure import CommandFailed
from broker.cli.node_format import STATIC_QUORUM, format_node
from broker.cli.options import json_option, key_value
from broker.cli.output import print_json
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.load import load_config
from broker.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES, bootstrap_records, feature_record
from broker.metadata.metadata_version import LATEST_METADATA_VERSION, METADATA_VERSION, MetadataVersion
from broker.metadata.records import VersionedRecord
from protocol.messages.metadata_records import FeatureLevelRecord
from protocol.primitives import uuid_to_text
from storage.errors import StorageError
from storage.files import OsFileSystem
from storage.formatting import is_cluster_id, random_id
from storage.meta_properties import MetaProperties, check_together, read_meta_properties

LARGER_QUORUM = (
    "Quorums of several controllers have not landed in this version yet: --standalone begins a quorum of one."
)


@click.group("storage", short_help="Format log directories, or show what is in them.")
def storage() -> None:
    """Format log directories, or show what is in them (kafka-storage)."""


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a random id, fit for a cluster."""
    click.echo(uuid_to_text(random_id()))


@storage.command("format")
@click.option("--config", "-c", "config_file", required=True, metavar="FILE", help="The configuration of the node.")
@click.option("--cluster-id", "-t", required=True, metavar="ID", help="The id of the cluster, from random-uuid.")
@click.option("--ignore-formatted", "-g", is_flag=True, help="Leave directories alone that are formatted already.")
@click.option("--release-version", "-r", metavar="VERSION", help="The metadata.version to begin with, such as 4.2-IV1.")
@click.option("--feature", "-f", "features", multiple=True, metavar="NAME=LEVEL", help="The level of a feature.")
@click.option("--standalone", "-s", is_flag=True, help="Begin a dynamic quorum of one.")
@click.option("--no-initial-controllers", "-N", is_flag=True, help="Join a dynamic quorum.")
@click.option("--initial-controllers", "-I", metavar="ID@HOST:PORT:DIRECTORY,…", help="Begin a dynamic quorum.")
@click.option("--add-scram", "-S", multiple=True, metavar="CREDENTIAL", help="A SCRAM credential to begin with.")
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
) -> None:
    """Format the log directories of a node."""
    if no_initial_controllers or initial_controllers is not None:
        raise CommandFailed(LARGER_QUORUM)
    if add_scram:
        raise CommandFailed("--add-scram: SCRAM credentials have not landed in this version yet.")
    if not is_cluster_id(cluster_id):
        raise CommandFailed(
            f"Cluster ID string {cluster_id} does not appear to be a valid UUID: `random-uuid` makes one."
        )
    config = _load(config_file)
    _check_quorum(config, standalone)
    version, records = initial_records(release_version, features, kraft_version=int(standalone))
    formatted = format_node(config, cluster_id, records, standalone=standalone, ignore_formatted=ignore_formatted)
    if not formatted.new:
        click.echo("All of the log directories are already formatted.")
    for path in formatted.new:
        kind = "metadata" if path == config.metadata_log_dir else "data"
        click.echo(f"Formatting {kind} directory {path} with metadata.version {version.release}.")


def _check_quorum(config: BrokerConfig, standalone: bool) -> None:
    """Static voters or a dynamic quorum, not both and not neither. Raises CommandFailed."""
    if standalone and config.voters:
        raise CommandFailed("You cannot specify --standalone and controller.quorum.voters at the same time.")
    if standalone and not config.is_controller:
        raise CommandFailed("You can only use --standalone on a controller.")
    if config.is_controller and not standalone and not config.voters:
        raise CommandFailed(
            "Because controller.quorum.voters is not set on this controller, you must give --standalone."
        )


def initial_records(
    release: str | None, features: Sequence[str], *, kraft_version: int = STATIC_QUORUM
) -> tuple[MetadataVersion, list[VersionedRecord]]:
    """The metadata.version, and the records a new cluster begins with. Raises CommandFailed, UsageError."""
    levels = dict(_level(feature) for feature in features)
    if release is not None and METADATA_VERSION in levels:
        raise click.UsageError("--release-version and --feature metadata.version exclude each other.")
    version = LATEST_METADATA_VERSION if release is None else parse_release(release)
    version = MetadataVersion(levels.pop(METADATA_VERSION, version))
    if levels.pop(KRAFT_VERSION, kraft_version) != kraft_version:
        raise CommandFailed(f"{KRAFT_VERSION} is {kraft_version} here: 1 goes with --standalone, 0 with static voters.")
    kept = [record for record in bootstrap_records(version) if _feature_name(record) not in levels]
    return version, kept + [feature_record(name, level) for name, level in sorted(levels.items()) if level]


def _feature_name(record: VersionedRecord) -> str | None:
    return record.message.name if isinstance(record.message, FeatureLevelRecord) else None


def _level(text: str) -> tuple[str, int]:
    name, level = key_value(text, "--feature")
    supported = SUPPORTED_FEATURES.get(name)
    if supported is None:
        raise CommandFailed(f"Unsupported feature: {name}. Supported features are: {', '.join(SUPPORTED_FEATURES)}")
    if not level.isdigit() or int(level) not in supported:
        raise CommandFailed(f"Feature {name} knows levels {supported.minimum} to {supported.maximum}, not {level}.")
    return name, int(level)


def parse_release(text: str) -> MetadataVersion:
    """ "4.2-IV1", or "4.2" for the last level of that release. Raises CommandFailed."""
    matching = [version for version in MetadataVersion if text in (version.release, version.release.partition("-")[0])]
    if not matching:
        known = f"{min(MetadataVersion).release} to {max(MetadataVersion).release}"
        raise CommandFailed(f"Unknown metadata.version {text}. Supported metadata.version are: {known}")
    return max(matching)


@storage.command("info")
@click.option("--config", "-c", "config_file", required=True, metavar="FILE", help="The configuration of the node.")
@json_option
def info(config_file: str, as_json: bool) -> None:
    """Show what the log directories of a node say of themselves."""
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
    """In the order of names; empty where the directory is not formatted."""
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


def _load(path: str) -> BrokerConfig:
    """Raises CommandFailed with the sentence of a bad configuration."""
    try:
        return load_config(path, (), {})[0]
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error
