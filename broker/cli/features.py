"""`ottla features`: Kafka's kafka-features."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import click

from broker.cli.shared.advice import with_advice_for
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import json_option, key_value
from broker.cli.shared.output import print_json
from broker.cli.shared.target import AdminClient, Target, target_options
from broker.metadata.image.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    SUPPORTED_FEATURES,
    bootstrap_records,
)
from broker.metadata.image.metadata_version import LATEST_METADATA_VERSION, METADATA_VERSION, MetadataVersion
from protocol.errors import ErrorCode
from protocol.messages.metadata_records import FeatureLevelRecord
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3

_DEPENDENCIES: Final[Mapping[tuple[str, int], tuple[str, MetadataVersion]]] = {
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): (METADATA_VERSION, MetadataVersion.IV_4_0_1),
}
"""Levels of other features that a feature level requires."""


class FeatureOperation(NamedTuple):
    """A subcommand's verb for messages: infinitive, past participle, and whether the level is named."""

    verb: str
    done: str
    names_level: bool

    def success(self, feature: str, level: int, *, dry_run: bool) -> str:
        """Return the message of success."""
        to = f" to {level}" if self.names_level else ""
        return f"{feature} {'can be' if dry_run else 'was'} {self.done}{to}."

    def failed(self, feature: str, level: int, reason: str) -> str:
        to = f" to {level}" if self.names_level else ""
        return f"Could not {self.verb} {feature}{to}. {reason}"


UPGRADING: Final = FeatureOperation("upgrade", "upgraded", names_level=True)
DOWNGRADING: Final = FeatureOperation("downgrade", "downgraded", names_level=True)
DISABLING: Final = FeatureOperation("disable", "disabled", names_level=False)


@click.group("features", short_help="Show or change feature levels of the cluster.")
@target_options
@click.pass_context
def features(
    context: click.Context, bootstrap_server: str | None, bootstrap_controller: str | None, command_config: str | None
) -> None:
    """Show or change feature levels of the cluster (kafka-features)."""
    context.obj = Target.of(bootstrap_server, bootstrap_controller, command_config)


@features.command("describe")
@json_option
@click.pass_obj
def describe(target: Target, as_json: bool) -> None:
    """Show the supported ranges and the finalized levels."""
    with target.open() as admin:
        answer = admin.client.any().api_versions
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    supported = sorted(answer.supported_features, key=lambda each: each.name)
    if as_json:
        rows = [
            {
                "feature": each.name,
                "supportedMinVersion": each.min_version,
                "supportedMaxVersion": each.max_version,
                "finalizedVersionLevel": finalized.get(each.name, 0),
            }
            for each in supported
        ]
        print_json({"epoch": answer.finalized_features_epoch, "features": rows})
        return
    for each in supported:
        level = finalized.get(each.name, 0)
        shown = [level_name(each.name, number) for number in (each.min_version, each.max_version, level)]
        click.echo(
            f"Feature: {each.name}\tSupportedMinVersion: {shown[0]}\tSupportedMaxVersion: {shown[1]}\t"
            f"FinalizedVersionLevel: {shown[2]}\tEpoch: {answer.finalized_features_epoch}"
        )


@features.command("upgrade")
@click.option("--metadata", metavar="VERSION", help="The target metadata.version; prefer --release-version.")
@click.option("--release-version", metavar="VERSION", help="Set all levels of a release.")
@click.option("--feature", "wanted", multiple=True, metavar="NAME=LEVEL", help="A feature and its level.")
@click.option("--dry-run", is_flag=True, help="Check, but change nothing.")
@click.pass_obj
def upgrade(
    target: Target, metadata: str | None, release_version: str | None, wanted: tuple[str, ...], dry_run: bool
) -> None:
    """Raise levels."""
    levels = _wanted_levels(metadata, release_version, wanted)
    with target.open() as admin:
        _update(admin, UPGRADING, levels, UPGRADE, dry_run=dry_run)


@features.command("downgrade")
@click.option("--metadata", metavar="VERSION", help="The target metadata.version; prefer --release-version.")
@click.option("--release-version", metavar="VERSION", help="Set all levels of a release.")
@click.option("--feature", "wanted", multiple=True, metavar="NAME=LEVEL", help="A feature and its level.")
@click.option("--unsafe", is_flag=True, help="Allow a downgrade that loses metadata.")
@click.option("--dry-run", is_flag=True, help="Check, but change nothing.")
@click.pass_obj
def downgrade(
    target: Target,
    metadata: str | None,
    release_version: str | None,
    wanted: tuple[str, ...],
    unsafe: bool,
    dry_run: bool,
) -> None:
    """Lower levels."""
    levels = _wanted_levels(metadata, release_version, wanted)
    with target.open() as admin:
        _update(admin, DOWNGRADING, levels, UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE, dry_run=dry_run)


@features.command("disable")
@click.option("--feature", "wanted", multiple=True, required=True, metavar="NAME", help="A feature.")
@click.option("--unsafe", is_flag=True, help="Allow a downgrade that loses metadata.")
@click.option("--dry-run", is_flag=True, help="Check, but change nothing.")
@click.pass_obj
def disable(target: Target, wanted: tuple[str, ...], unsafe: bool, dry_run: bool) -> None:
    """Lower levels to 0."""
    levels = dict.fromkeys(wanted, 0)
    with target.open() as admin:
        _update(admin, DISABLING, levels, UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE, dry_run=dry_run)


@features.command("version-mapping")
@click.option("--release-version", metavar="VERSION", help="The release; by default the latest.")
@json_option
def version_mapping(release_version: str | None, as_json: bool) -> None:
    """Show the levels that belong to a release."""
    levels = release_levels(LATEST_METADATA_VERSION if release_version is None else _release(release_version))
    if as_json:
        print_json(levels)
        return
    for name, level in levels.items():
        shown = f" ({level_name(name, level)})" if name == METADATA_VERSION else ""
        click.echo(f"{name}={level}{shown}")


@features.command("feature-dependencies")
@click.option("--feature", "wanted", multiple=True, required=True, metavar="NAME=LEVEL", help="A feature.")
@json_option
def feature_dependencies(wanted: tuple[str, ...], as_json: bool) -> None:
    """Show the features that levels depend on."""
    levels = [_level(text) for text in wanted]
    for name, level in levels:
        if name not in SUPPORTED_FEATURES:
            raise CommandFailed(f"Unknown feature: {name}")
        if level not in SUPPORTED_FEATURES[name] and level != 0:
            raise CommandFailed(f"No feature:{name} with feature level {level}")
    if as_json:
        print_json([{"feature": name, "level": level, "requires": _required(name, level)} for name, level in levels])
        return
    for name, level in levels:
        shown = f" ({level_name(name, level)})" if name == METADATA_VERSION else ""
        needed = [
            f"    {other}={least} ({level_name(other, least)})" for other, least in _required(name, level).items()
        ]
        heading = "requires:" if needed else "has no dependencies."
        click.echo("\n".join([f"{name}={level}{shown} {heading}", *needed]))


def _required(feature: str, level: int) -> dict[str, int]:
    """Return the minimum levels of other features that a level requires, by name."""
    needed = _DEPENDENCIES.get((feature, level))
    return {} if needed is None else {needed[0]: int(needed[1])}


def level_name(feature: str, level: int) -> str:
    """Return the release of a metadata.version level, and the number of any other level."""
    if feature != METADATA_VERSION:
        return str(level)
    known = MetadataVersion._value2member_map_.get(level)
    return known.release if isinstance(known, MetadataVersion) else f"UNKNOWN [{level}]"


def release_levels(version: MetadataVersion) -> dict[str, int]:
    """Return the levels of all features of a release, metadata.version first."""
    levels = dict.fromkeys(sorted(SUPPORTED_FEATURES), 0)
    levels = {METADATA_VERSION: levels.pop(METADATA_VERSION)} | levels
    for record in bootstrap_records(version):
        if isinstance(record.message, FeatureLevelRecord):
            levels[record.message.name] = record.message.feature_level
    levels[KRAFT_VERSION] = int(version >= MetadataVersion.IV_3_9_0)
    return levels


def _release(text: str) -> MetadataVersion:
    from broker.cli.storage import parse_release

    return parse_release(text)


def _wanted_levels(metadata: str | None, release: str | None, wanted: Sequence[str]) -> dict[str, int]:
    """Return the requested levels. Raises UsageError."""
    if release is not None:
        if metadata is not None or wanted:
            raise click.UsageError("--release-version goes neither with --metadata nor with --feature.")
        return release_levels(_release(release))
    levels = {} if metadata is None else {METADATA_VERSION: int(_release(metadata))}
    for name, level in (_level(text) for text in wanted):
        if name in levels:
            raise click.UsageError(f"Feature {name} was specified more than once.")
        levels[name] = level
    if not levels:
        raise click.UsageError("You must specify at least one feature: --release-version, --metadata or --feature.")
    return levels


def _level(text: str) -> tuple[str, int]:
    name, level = key_value(text, "--feature")
    if not level.strip().isdecimal():
        raise click.UsageError(f"--feature: {level!r} is not a level; use a number.")
    return name, int(level)


def _update(
    admin: AdminClient, operation: FeatureOperation, levels: Mapping[str, int], kind: int, *, dry_run: bool
) -> None:
    """Request all levels at once: the controller applies all or none. Raises CommandFailed."""
    request = UpdateFeaturesRequest(
        timeout_ms=admin.client.config.request_timeout_ms,
        feature_updates=[FeatureUpdateKey(name, level, upgrade_type=kind) for name, level in levels.items()],
        validate_only=dry_run,
    )
    answer = admin.call(request, UpdateFeaturesResponse)
    failures = {result.feature: result.error_message for result in answer.results if result.error_code}
    failed = 0
    for name, level in sorted(levels.items()):
        if answer.error_code or name in failures:
            failed += 1
            reason = failures.get(name) or answer.error_message or ErrorCode(answer.error_code).message
            click.echo(operation.failed(name, level, reason))
        else:
            click.echo(operation.success(name, level, dry_run=dry_run))
    if failed:
        codes = [answer.error_code, *(result.error_code for result in answer.results)]
        raise CommandFailed(with_advice_for(f"{failed} out of {len(levels)} operation(s) failed.", codes))
