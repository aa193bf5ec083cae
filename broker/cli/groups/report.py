"""Output of groups: the columns of kafka-consumer-groups, or documents for --json."""

from collections.abc import Sequence
from enum import Enum, auto

import click

from broker.cli.groups.columns import MISSING, column, dash
from broker.cli.groups.view import GroupDescription
from broker.cli.shared.offsets import LATEST, by_topic, committed_offsets, list_offsets
from broker.cli.shared.output import print_columns, print_json
from broker.client import Client
from protocol.errors import KafkaError
from protocol.messages.list_groups import ListedGroup
from storage.directories.checkpoints import TopicPartition


class Detail(Enum):
    """The part of a group that --describe prints."""

    OFFSETS = auto()
    MEMBERS = auto()
    STATE = auto()

    @classmethod
    def of(cls, *, offsets: bool, members: bool, state: bool) -> "Detail":
        if offsets + members + state > 1:
            raise click.UsageError("Only one of --offsets, --members and --state can be given.")
        return cls.MEMBERS if members else cls.STATE if state else cls.OFFSETS


def print_list(groups: Sequence[ListedGroup], *, with_type: bool, with_state: bool, as_json: bool) -> None:
    if as_json:
        print_json([{"groupId": g.group_id, "type": g.group_type.capitalize(), "state": g.group_state} for g in groups])
        return
    if not (with_type or with_state):
        for group in groups:
            click.echo(group.group_id)
        return
    headings = ["GROUP", *(["TYPE"] if with_type else []), *(["STATE"] if with_state else [])]
    rows = [
        [g.group_id, *([g.group_type.capitalize()] if with_type else []), *([g.group_state] if with_state else [])]
        for g in groups
    ]
    formats = [column(rows, 0, 32), *["{:<20}"] * (len(headings) - 1)]
    print_columns(headings, rows, formats)


def describe_offsets(client: Client, group: GroupDescription, verbose: bool, as_json: bool) -> object:
    """Print a row per partition that is assigned or has a committed offset, and per idle member."""
    rows = _offset_rows(client, group)
    if as_json:
        return {"groupId": group.id, "state": group.state, "partitions": [_offset_document(row) for row in rows]}
    headings = ["GROUP", "TOPIC", "PARTITION"]
    headings += (["LEADER-EPOCH"] if verbose else []) + ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    headings += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
    cells = [_offset_cells(group.id, row, verbose) for row in rows]
    formats = [column(cells, 0), column(cells, 1), "{:<10}", *["{:<15}"] * (4 if verbose else 3)]
    formats += [column(cells, -3), column(cells, -2), "{}"]
    click.echo()
    print_columns(headings, cells, formats)
    return None


class _OffsetRow:
    """A partition of a group; None is printed as a dash."""

    __slots__ = ("client_id", "committed", "end", "epoch", "host", "member_id", "partition")

    def __init__(self, partition: TopicPartition | None) -> None:
        self.partition = partition
        self.committed: int | None = None
        self.epoch: int | None = None
        self.end: int | None = None
        self.member_id: str | None = None
        self.host: str | None = None
        self.client_id: str | None = None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


def _offset_rows(client: Client, group: GroupDescription) -> list[_OffsetRow]:
    """Return assigned and committed partitions, sorted, then members without partitions."""
    committed = committed_offsets(client, group.id)
    owners = {partition: member for member in group.members for partition in member.assignment}
    rows = []
    for partition in sorted(committed.keys() | owners.keys()):
        row = _OffsetRow(partition)
        if partition in committed:
            row.committed, epoch = committed[partition]
            row.epoch = None if epoch < 0 else epoch
        if partition in owners:
            owner = owners[partition]
            row.member_id, row.host, row.client_id = owner.id, owner.host, owner.client_id
        rows.append(row)
    ends = _ends(client, [row.partition for row in rows if row.partition is not None])
    for row in rows:
        row.end = None if row.partition is None else ends.get(row.partition)
    for member in group.members:
        if not member.assignment:
            row = _OffsetRow(None)
            row.member_id, row.host, row.client_id = member.id, member.host, member.client_id
            rows.append(row)
    return rows


def _ends(client: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return log end offsets, requested per topic, so that a deleted topic affects only its own partitions."""
    ends: dict[TopicPartition, int] = {}
    for group in by_topic(partitions).values():
        try:
            ends |= list_offsets(client, dict.fromkeys(group, LATEST))
        except KafkaError:
            continue
    return ends


def _offset_cells(group_id: str, row: _OffsetRow, verbose: bool) -> list[str]:
    topic, partition = (None, None) if row.partition is None else row.partition
    numbers = ([row.epoch] if verbose else []) + [row.committed, row.end, row.lag]
    return [group_id, *(dash(value) for value in (topic, partition, *numbers, row.member_id, row.host, row.client_id))]


def _offset_document(row: _OffsetRow) -> dict[str, object]:
    topic, partition = (None, None) if row.partition is None else row.partition
    return {
        "topic": topic,
        "partition": partition,
        "leaderEpoch": row.epoch,
        "currentOffset": row.committed,
        "logEndOffset": row.end,
        "lag": row.lag,
        "consumerId": row.member_id,
        "host": row.host,
        "clientId": row.client_id,
    }


def describe_members(client: Client, group: GroupDescription, verbose: bool, as_json: bool) -> object:
    """Print a row per member."""
    if as_json:
        return {"groupId": group.id, "state": group.state, "members": _member_documents(group)}
    has_static = any(member.instance_id is not None for member in group.members)
    headings = [
        "GROUP",
        "CONSUMER-ID",
        *(["GROUP-INSTANCE-ID"] if has_static else []),
        "HOST",
        "CLIENT-ID",
        "#PARTITIONS",
    ]
    widths = ["{:<15} "]
    if verbose:
        headings += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths = ["{:<15}", "{:<15}", "{:<20}", "{:<15}", "{:<20}"]
    cells = [
        [
            group.id,
            m.id,
            *([dash(m.instance_id)] if has_static else []),
            m.host,
            m.client_id,
            str(len(m.assignment)),
            *(_assignment_cells(group, m.epoch, m.assignment, m.target) if verbose else []),
        ]
        for m in group.members
    ]
    names = 5 if has_static else 4
    click.echo()
    print_columns(headings, cells, [*(column(cells, index) for index in range(names)), *widths])
    return None


def _assignment_cells(
    group: GroupDescription,
    epoch: int | None,
    current: Sequence[TopicPartition],
    target: Sequence[TopicPartition] | None,
) -> list[str]:
    return [
        dash(epoch),
        _assignment_text(current),
        dash(None if target is None else group.target_epoch),
        MISSING if target is None else _assignment_text(target),
    ]


def _assignment_text(partitions: Sequence[TopicPartition]) -> str:
    """Return the text "t1:0,1;t2:0"."""
    topics = by_topic(partitions)
    return ";".join(f"{t}:{','.join(str(p.partition) for p in group)}" for t, group in topics.items()) or MISSING


def _member_documents(group: GroupDescription) -> list[dict[str, object]]:
    return [
        {
            "consumerId": m.id,
            "groupInstanceId": m.instance_id,
            "host": m.host,
            "clientId": m.client_id,
            "epoch": m.epoch,
            "assignment": [{"topic": p.topic, "partition": p.partition} for p in m.assignment],
        }
        for m in group.members
    ]


def describe_states(client: Client, group: GroupDescription, verbose: bool, as_json: bool) -> object:
    """Print the row of a group."""
    node_id, host, port = group.coordinator
    if as_json:
        return {
            "groupId": group.id,
            "type": group.kind,
            "state": group.state,
            "coordinator": {"id": node_id, "host": host, "port": port},
            "assignmentStrategy": group.assignor,
            "groupEpoch": group.epoch,
            "targetAssignmentEpoch": group.target_epoch,
            "members": len(group.members),
        }
    headings = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    headings += (["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []) + ["#MEMBERS"]
    cells = [group.id, f"{host}:{port}  ({node_id})", group.assignor or MISSING, group.state]
    cells += ([dash(group.epoch), dash(group.target_epoch)] if verbose else []) + [str(len(group.members))]
    formats = [column([cells], 0), "{:<25}", "{:<20}", "{:<20}", *(["{:<15}", "{:<25}"] if verbose else []), "{}"]
    click.echo()
    print_columns(headings, [cells], formats)
    return None
