"""--reset-offsets and --delete-offsets: requests to the brokers and output; `offset_reset` has the rules."""

from collections.abc import Callable, Collection, Mapping, Sequence

import click

from broker.cli.groups.offset_reset import (
    ResetCandidates,
    ResetError,
    ResetSpecification,
    ResetStrategy,
    new_offset,
    parse_scope,
    read_plan,
    written_plan,
)
from broker.cli.groups.view import DEAD, EMPTY, describe_group
from broker.cli.shared.advice import with_advice_for
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import EARLIEST, LATEST, commit_offsets, committed_offsets, list_offsets
from broker.cli.shared.output import print_columns, print_json, width_of
from broker.cli.shared.progress import ProgressBar
from broker.client import Client, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from storage.directories.checkpoints import TopicPartition

ResetPlan = dict[str, dict[TopicPartition, int]]


def reset_offsets(
    client: Client,
    groups: Sequence[str],
    specification: ResetSpecification,
    *,
    topics: Sequence[str] | None,
    file: str | None,
    execute: bool,
    export: bool,
    as_json: bool,
    state_of: Callable[[Client, str], str] = lambda client, group: describe_group(client, group).state,
) -> None:
    """Compute the new offsets of `groups`, commit them if `execute`, and print them.

    `topics` are scopes such as "t" or "t:0,1"; None selects every topic with a committed offset. `state_of` returns the
    state of a group. Raises ResetError or KafkaError.
    """
    for group in groups:
        _require_inactive(client, group, state_of)
    if file is None:
        plan = {group: _planned(client, group, specification, topics) for group in groups}
    else:
        plan = _clamped(client, _read(file, groups))
    if execute:
        for group, offsets in plan.items():
            commit_offsets(client, group, offsets)
    if export:
        click.echo("\n".join(written_plan(plan)))
    else:
        print_plan(plan, as_json=as_json)


def _require_inactive(client: Client, group: str, state_of: Callable[[Client, str], str]) -> None:
    try:
        state = state_of(client, group)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if state not in (EMPTY, DEAD):
        raise ResetError(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
        )


def _planned(
    client: Client, group: str, specification: ResetSpecification, topics: Sequence[str] | None
) -> dict[TopicPartition, int]:
    committed = {partition: offset for partition, (offset, _) in committed_offsets(client, group).items()}
    scope = sorted(committed) if topics is None else expand(client, topics)
    return planned_offsets(client, specification, scope, committed)


def planned_offsets(
    client: Client,
    specification: ResetSpecification,
    scope: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition in the scope. Raises ResetError or KafkaError."""
    times = [specification.number] if specification.strategy is ResetStrategy.BY_TIME else []
    earliest, latest, *found = _listed(client, scope, EARLIEST, LATEST, *times)
    by_time = found[0] if found else {}
    planned = {}
    for partition in scope:
        at = by_time.get(partition, -1)
        if specification.strategy is ResetStrategy.BY_TIME and at < 0:
            click.echo(
                f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty."
                " Falling back to latest known offset.",
                err=True,
            )
        candidates = ResetCandidates(
            earliest[partition], latest[partition], committed.get(partition), None if at < 0 else at
        )
        planned[partition] = new_offset(specification, partition, candidates)
    return planned


def _listed(client: Client, scope: Collection[TopicPartition], *timestamps: int) -> list[dict[TopicPartition, int]]:
    """Return the offsets of the partitions for each timestamp. Shows progress: a topic may have many partitions."""
    with ProgressBar("offsets", len(scope) * len(timestamps)) as progress:
        return [list_offsets(client, dict.fromkeys(scope, each), advance=progress.advance) for each in timestamps]


def _clamped(client: Client, plan: ResetPlan) -> ResetPlan:
    """Limit offsets from a file to the offsets of the partitions."""
    scope = {partition for offsets in plan.values() for partition in offsets}
    earliest, latest = _listed(client, scope, EARLIEST, LATEST)
    return {
        group: {
            partition: new_offset(
                ResetSpecification(ResetStrategy.FROM_FILE, offset),
                partition,
                ResetCandidates(earliest[partition], latest[partition], None, None),
            )
            for partition, offset in sorted(offsets.items())
        }
        for group, offsets in plan.items()
    }


def _read(path: str, groups: Sequence[str]) -> ResetPlan:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return read_plan(file, groups)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}.") from error


def expand(client: Client, scopes: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of scopes such as "t" (all) and "t:0,1". Raises KafkaError for an unknown topic."""
    parsed = [parse_scope(scope) for scope in scopes]
    whole = [topic for topic, partitions in parsed if partitions is None]
    found = client.leaders(whole) if whole else {}
    expanded = []
    for topic, partitions in parsed:
        numbers = [p.partition_index for p in found[topic].partitions] if partitions is None else partitions
        expanded += [TopicPartition(topic, number) for number in numbers]
    return sorted(set(expanded))


def print_plan(plan: ResetPlan, *, as_json: bool) -> None:
    """Print new offsets by group and partition."""
    if as_json:
        print_json(_documents(plan))
        return
    rows = [
        [group, partition.topic, str(partition.partition), str(offset)]
        for group, offsets in plan.items()
        for partition, offset in offsets.items()
    ]
    widths = [width_of((row[column] for row in rows), 15) for column in (0, 1)]
    formats = [*(f"{{:<{width}}}" for width in widths), "{:<10}", "{}"]
    click.echo()
    print_columns(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], rows, formats)


def _documents(plan: ResetPlan) -> list[dict[str, object]]:
    return [
        {"groupId": group, "topic": partition.topic, "partition": partition.partition, "newOffset": offset}
        for group, offsets in plan.items()
        for partition, offset in offsets.items()
    ]


def delete_offsets(client: Client, group: str, scopes: Sequence[str]) -> None:
    """Delete offsets and print each result. Raises CommandFailed if a deletion failed."""
    rows: list[tuple[str, str, ErrorCode]] = []
    request = OffsetDeleteRequest(group_id=group)
    for scope in scopes:
        topic = parse_scope(scope)[0]
        try:
            partitions = expand(client, [scope])
        except KafkaError as error:
            rows.append((topic, "-", error.code))
            continue
        request.topics.append(
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(p.partition) for p in partitions])
        )
    response = client.coordinator(group).call(request, OffsetDeleteResponse)
    raise_for(response.error_code, f"group {group!r}")
    rows += [
        (topic.name, str(p.partition_index), ErrorCode(p.error_code))
        for topic in response.topics
        for p in topic.partitions
    ]
    failed = any(code for _, _, code in rows)
    outcome = "Encountered some errors while" if failed else "Request succeeded for"
    click.echo(f"{outcome} deleting offsets from group {group}.\n")
    cells = [
        (topic, partition, f"Error: {code.message}" if code else "Successful")
        for topic, partition, code in sorted(rows)
    ]
    print_columns(
        ["TOPIC", "PARTITION", "STATUS"], cells, [f"{{:<{width_of((c[0] for c in cells), 15)}}}", "{:<10}", "{:<15}"]
    )
    if failed:
        text = f"some offsets of group {group} were not deleted; see the errors above."
        raise CommandFailed(with_advice_for(text, (code for _, _, code in rows)))
