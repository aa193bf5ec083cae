"""`ottla streams-application-reset`: Kafka's kafka-streams-application-reset."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import click

from broker.cli.groups.choices import reset_specification
from broker.cli.groups.offset_reset import ResetError, ResetSpecification, ResetStrategy, read_plan
from broker.cli.groups.offsets import expand, planned_offsets
from broker.cli.groups.streams_view import describe_streams_group
from broker.cli.groups.view import describe_group
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import EARLIEST, LATEST, commit_offsets, committed_offsets, list_offsets
from broker.cli.shared.options import client_options
from broker.cli.shared.session import session
from broker.client import Client, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from storage.directories.checkpoints import TopicPartition

_INTERNAL: Final = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic)"
    r"|.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)
"""Names of internal topics after the application id, as Kafka's tool infers them."""

_DELETION_TIMEOUT_MS: Final = 60_000
_DRY_RUN: Final = "----Dry run displays the actions which will be performed when running Streams Reset Tool----"


class _Topics(NamedTuple):
    """Topics of an option, split into those that exist and those that do not."""

    found: list[str]
    missing: list[str]

    @classmethod
    def of(cls, names: Sequence[str], existing: set[str]) -> "_Topics":
        return cls([name for name in names if name in existing], [name for name in names if name not in existing])


class _Offsets(NamedTuple):
    """The new offsets of input topics: by a specification, or from a CSV file."""

    specification: ResetSpecification
    file: str | None


@click.command("streams-application-reset", short_help="Reset a Kafka Streams application to process its input again.")
@click.option("--application-id", required=True, metavar="ID", help="application.id of the application.")
@click.option("--input-topics", metavar="TOPIC[,…]", help="Input topics. [default reset: the earliest offset]")
@click.option("--intermediate-topics", metavar="TOPIC[,…]", help="Topics that are input and output: skip to the end.")
@click.option("--internal-topics", metavar="TOPIC[,…]", help="Internal topics to delete. [default: all]")
@click.option("--to-offset", type=int, metavar="N", help="Reset to an offset.")
@click.option("--to-earliest", is_flag=True, help="Reset to the earliest offset.")
@click.option("--to-latest", is_flag=True, help="Reset to the log end.")
@click.option("--shift-by", type=int, metavar="N", help="Move by N, which may be negative.")
@click.option("--to-datetime", metavar="TIME", help="Reset to a time: YYYY-MM-DDThh:mm:ss.sss.")
@click.option("--by-duration", metavar="DURATION", help="Reset to a time before now: PnDTnHnMnS.")
@click.option("--from-file", metavar="FILE", type=click.Path(), help="Reset to a CSV file of topic,partition,offset.")
@click.option("--force", is_flag=True, help="Remove members of the group that have a long session timeout.")
@click.option("--dry-run", is_flag=True, help="Print the actions, and change nothing.")
@click.option("--config-file", metavar="FILE", type=click.Path(), help="Deprecated: use --command-config.")
@client_options
def streams_application_reset(
    application_id: str,
    input_topics: str | None,
    intermediate_topics: str | None,
    internal_topics: str | None,
    to_offset: int | None,
    to_earliest: bool,
    to_latest: bool,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: str | None,
    force: bool,
    dry_run: bool,
    config_file: str | None,
    bootstrap_server: str,
    command_config: str | None,
) -> None:
    """Reset the offsets of a Kafka Streams application, and delete its internal topics.

    Stop all instances first, and delete their local state afterwards (kafka-streams-application-reset).
    """
    if command_config is not None and config_file is not None:
        raise click.UsageError("--config-file and --command-config exclude each other; use --command-config.")
    given: dict[ResetStrategy, int | str | bool | None] = {
        ResetStrategy.TO_OFFSET: to_offset,
        ResetStrategy.TO_EARLIEST: to_earliest or None,
        ResetStrategy.TO_LATEST: to_latest or None,
        ResetStrategy.SHIFT_BY: shift_by,
        ResetStrategy.FROM_FILE: from_file,
    }
    if all(value is None for value in (*given.values(), to_datetime, by_duration)):
        given[ResetStrategy.TO_EARLIEST] = True
    offsets = _Offsets(reset_specification(given, to_datetime, by_duration), from_file)
    with session(bootstrap_server, command_config or config_file) as client:
        reset = _Reset(client, application_id, is_dry_run=dry_run)
        client.retrying(lambda: reset.end_membership(force=force))
        try:
            all_found = reset.reset(_names(input_topics), _names(intermediate_topics), offsets)
        except ResetError as error:
            raise CommandFailed(str(error)) from error
        reset.delete_internal_topics(_names(internal_topics))
    if not all_found:
        raise CommandFailed("some topics do not exist; see above. `ottla topics --list` shows the topics.")


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


class _Reset:
    """The steps of a reset of one application, on the topics of the cluster at its start."""

    def __init__(self, client: Client, application_id: str, *, is_dry_run: bool) -> None:
        self._client = client
        self._id = application_id
        self._is_dry_run = is_dry_run
        self._existing = {topic.name or "" for topic in client.metadata().topics}
        if is_dry_run:
            click.echo(_DRY_RUN)

    def end_membership(self, *, force: bool) -> None:
        """Refuse a group with members, or with `force` remove them. Raises CommandFailed or KafkaError."""
        members = self._members()
        if not members:
            return
        if not force:
            raise CommandFailed(
                f"group {self._id!r} has active members: {', '.join(members)}. Stop all instances of the application,"
                " or remove members of stopped instances by --force."
            )
        click.echo(f"Force deleting all active members in the group: {self._id}")
        request = LeaveGroupRequest(group_id=self._id, members=[MemberIdentity(each) for each in members])
        response = self._client.coordinator(self._id).call(request, LeaveGroupResponse)
        raise_for(response.error_code, f"group {self._id!r}")
        for member in response.members:
            raise_for(member.error_code, f"member {member.member_id} of group {self._id!r}")

    def _members(self) -> list[str]:
        try:
            return [each.id for each in describe_group(self._client, self._id).members]
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        try:
            streams = describe_streams_group(self._client, self._id).described.members
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
            return []
        if streams:
            raise CommandFailed(
                f"streams group {self._id!r} has {len(streams)} active members, which --force does not remove."
                " Stop all instances of the application and wait until their sessions end."
            )
        return []

    def reset(self, inputs: Sequence[str], intermediates: Sequence[str], offsets: _Offsets) -> bool:
        """Commit the new offsets of input topics, and the log ends of intermediate topics.

        Return whether all of them exist. Raises ResetError, KafkaError or ClientError.
        """
        if not inputs and not intermediates:
            click.echo("No input or intermediate topics specified. Skipping seek.")
            return True
        if intermediates:
            click.echo("WARN: `--intermediate-topics` is deprecated and will be removed in a future release")
        if inputs:
            click.echo(f"Reset-offsets for input topics {_listed(inputs)}")
        if intermediates:
            click.echo(f"Seek-to-end for intermediate topics {_listed(intermediates)}")
        of_inputs, of_intermediates = _Topics.of(inputs, self._existing), _Topics.of(intermediates, self._existing)
        _print_missing("input", of_inputs)
        _print_missing("intermediate", of_intermediates)
        all_found = not of_inputs.missing and not of_intermediates.missing
        if not of_inputs.found and not of_intermediates.found:
            return all_found
        plan: dict[TopicPartition, int] = {}
        if of_inputs.found:
            click.echo(f"Following input topics offsets will be reset to (for consumer group {self._id})")
            plan = self._client.retrying(lambda: self._planned(of_inputs.found, offsets))
            for partition, offset in sorted(plan.items()):
                click.echo(f"Topic: {partition.topic} Partition: {partition.partition} Offset: {offset}")
        if of_intermediates.found:
            click.echo(f"Following intermediate topics offsets will be reset to end (for consumer group {self._id})")
            ends = self._client.retrying(lambda: self._ends(of_intermediates.found))
            for partition in sorted(ends):  # Kafka's tool prints a line for each partition
                click.echo(f"Topic: {partition.topic}")
            plan |= ends
        if not self._is_dry_run:
            self._client.retrying(lambda: commit_offsets(self._client, self._id, plan))
        click.echo("Done.")
        return all_found

    def _planned(self, topics: Sequence[str], offsets: _Offsets) -> dict[TopicPartition, int]:
        scope = expand(self._client, topics)
        if offsets.file is not None:
            return self._from_file(offsets.file, scope)
        match offsets.specification.strategy:
            case ResetStrategy.SHIFT_BY:
                positions = list_offsets(self._client, dict.fromkeys(scope, LATEST))
                positions |= {each: offset for each, (offset, _) in self._committed().items() if each in positions}
                shift = offsets.specification.number
                return self._limited({each: offset + shift for each, offset in positions.items()})
            case ResetStrategy.TO_OFFSET:
                return self._limited(dict.fromkeys(scope, offsets.specification.number))
            case ResetStrategy.BY_TIME:
                return self._at(scope, offsets.specification.number)
        return planned_offsets(self._client, offsets.specification, scope, {})

    def _limited(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offsets within the logs of the partitions, and print each that is not."""
        earliest = list_offsets(self._client, dict.fromkeys(wanted, EARLIEST))
        latest = list_offsets(self._client, dict.fromkeys(wanted, LATEST))
        limited = {}
        for partition, offset in wanted.items():
            limited[partition] = limit = min(max(offset, earliest[partition]), latest[partition])
            if limit != offset:
                bound = "lower than earliest" if limit > offset else "higher than latest"
                click.echo(f"New offset ({offset}) is {bound} offset. Value will be set to {limit}")
        return limited

    def _at(self, scope: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """Return the offsets of a time, or the log ends, and print each partition without a record of that time."""
        found = list_offsets(self._client, dict.fromkeys(scope, time_ms))
        late = [partition for partition in scope if found[partition] < 0]
        for partition in late:
            click.echo(
                f"Partition {partition.partition} from topic {partition.topic} is empty, without a committed record."
                " Falling back to latest known offset."
            )
        return found | list_offsets(self._client, dict.fromkeys(late, LATEST))

    def _committed(self) -> dict[TopicPartition, tuple[int, int]]:
        try:
            return committed_offsets(self._client, self._id)
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return {}

    def _from_file(self, path: str, scope: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of a file, within the partitions' logs, for the partitions of input topics."""
        try:
            with open(path, encoding="utf-8", newline="") as file:
                wanted = read_plan(file, [self._id])[self._id]
        except OSError as error:
            raise CommandFailed(f"cannot read {path}: {error.strerror}.") from error
        if unknown := sorted(wanted.keys() - set(scope)):
            raise CommandFailed(f"{path}: partition {unknown[0]} belongs to no topic of --input-topics; add its topic.")
        return self._limited(wanted)

    def _ends(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        return list_offsets(self._client, dict.fromkeys(expand(self._client, topics), LATEST))

    def delete_internal_topics(self, chosen: Sequence[str]) -> None:
        """Delete the internal topics, or the chosen ones of them. Raises CommandFailed, KafkaError or ClientError."""
        prefix = f"{self._id}-"
        internal = [
            topic for topic in sorted(self._existing) if topic.startswith(prefix) and _INTERNAL.fullmatch(topic)
        ]
        if others := sorted(set(chosen) - set(internal)):
            raise CommandFailed(
                f"--internal-topics: {', '.join(others)}: not an internal topic of application {self._id!r};"
                " --dry-run without --internal-topics lists the internal topics."
            )
        topics = list(chosen) or internal
        click.echo(f"Deleting {'specified' if chosen else 'inferred'} internal topics {_listed(topics)}")
        if topics and not self._is_dry_run:
            self._delete(topics)
        click.echo("Done.")

    def _delete(self, topics: Sequence[str]) -> None:
        request = DeleteTopicsRequest([DeleteTopicState(name) for name in topics], timeout_ms=_DELETION_TIMEOUT_MS)
        failed = [
            f"{result.name} ({result.error_message or ErrorCode(result.error_code).message})"
            for result in self._client.call(request, DeleteTopicsResponse).responses
            if result.error_code
        ]
        if failed:
            raise CommandFailed(f"internal topics of application {self._id!r} were not deleted: {', '.join(failed)}")


def _print_missing(kind: str, topics: _Topics) -> None:
    if topics.missing:
        click.echo(f"Following {kind} topics are not found, skipping them")
        click.echo("\n".join(f"Topic: {topic}" for topic in topics.missing))


def _listed(names: Sequence[str]) -> str:
    """Return the text of a Java list."""
    return f"[{', '.join(names)}]"
