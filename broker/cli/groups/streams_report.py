"""Output of streams groups: the columns of kafka-streams-groups, or documents for --json."""

from collections.abc import Sequence

import click

from broker.cli.groups.columns import column, dash
from broker.cli.groups.streams_view import StreamsGroupView, committed_inputs
from broker.cli.shared.offsets import EARLIEST, LATEST, list_offsets
from broker.cli.shared.output import print_columns
from broker.client import Client
from protocol.messages.streams_group_describe import Assignment, Member, TaskIds
from storage.directories.checkpoints import TopicPartition


def describe_streams_offsets(client: Client, group: StreamsGroupView, verbose: bool, as_json: bool) -> object:
    """Print a row per input partition of an active task. Without a commit, the lag counts from the log start."""
    partitions = _active_partitions(client, group)
    starts = list_offsets(client, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(client, dict.fromkeys(partitions, LATEST))
    committed = committed_inputs(client, group)
    rows = []
    for partition in partitions:
        offset, epoch = committed.get(partition, (None, -1))
        lag = ends[partition] - (starts[partition] if offset is None else offset)
        rows.append((partition, offset, None if epoch < 0 else epoch, ends[partition], lag))
    if as_json:
        names = ("currentOffset", "leaderEpoch", "logEndOffset", "offsetLag")
        return {
            "groupId": group.group_id,
            "state": group.described.group_state,
            "partitions": [
                {"topic": partition.topic, "partition": partition.partition, **dict(zip(names, values, strict=True))}
                for partition, *values in rows
            ],
        }
    cells = [
        [group.group_id, partition.topic, str(partition.partition), *map(dash, values if verbose else values[-1:])]
        for partition, *values in rows
    ]
    headings = ["GROUP", "TOPIC", "PARTITION"]
    headings += ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG"] if verbose else ["OFFSET-LAG"]
    formats = [column(cells, 0), column(cells, 1), "{:<10}", *["{:<15}"] * (3 if verbose else 0), "{}"]
    print_columns(headings, cells, formats)
    return None


def describe_streams_members(_client: Client, group: StreamsGroupView, verbose: bool, as_json: bool) -> object:
    """Print a row per member."""
    described = group.described
    if as_json:
        return {
            "groupId": group.group_id,
            "state": described.group_state,
            "members": [_member_document(each) for each in described.members],
        }
    headings = ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
    cells = [
        [group.group_id, each.member_id, each.process_id, each.client_id, _tasks_text(each.assignment, "")]
        for each in described.members
    ]
    formats = [*(column(cells, index) for index in range(4)), "{}"]
    if verbose:
        epoch = 0 if described.topology is None else described.topology.epoch
        headings[1:1] = ["TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH"]
        headings[4:4] = ["MEMBER-PROTOCOL", "MEMBER-EPOCH"]
        formats[1:1] = ["{:<25}", "{:<15}"]
        formats[4:4] = ["{:<15}", "{:<15}"]
        for row, member in zip(cells, described.members, strict=True):
            row[-1] += _tasks_text(member.target_assignment, "TARGET-")
            row[1:1] = [str(described.assignment_epoch), str(epoch)]
            row[4:4] = ["classic" if member.is_classic else "streams", str(member.member_epoch)]
    print_columns(headings, cells, formats)
    return None


def describe_streams_states(_client: Client, group: StreamsGroupView, verbose: bool, as_json: bool) -> object:
    """Print the row of a group."""
    described = group.described
    node_id, host, port = group.coordinator
    epochs = [described.group_epoch, described.assignment_epoch]
    if as_json:
        return {
            "groupId": group.group_id,
            "state": described.group_state,
            "coordinator": {"id": node_id, "host": host, "port": port},
            "groupEpoch": epochs[0],
            "targetAssignmentEpoch": epochs[1],
            "members": len(described.members),
        }
    headings = ["GROUP", "COORDINATOR (ID)", "STATE"]
    headings += (["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []) + ["#MEMBERS"]
    cells = [group.group_id, f"{host}:{port} ({node_id})", described.group_state]
    cells += (list(map(str, epochs)) if verbose else []) + [str(len(described.members))]
    formats = [column([cells], 0), "{:<25}", "{:<25}", *(["{:<15}", "{:<25}"] if verbose else []), "{}"]
    print_columns(headings, [cells], formats)
    return None


def _active_partitions(client: Client, group: StreamsGroupView) -> list[TopicPartition]:
    """Return the input partitions of active tasks; a task has the partition of its number of each input topic."""
    inputs = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in group.subtopologies()
    }
    tasks = [task for member in group.described.members for task in member.assignment.active_tasks]
    wanted = {
        TopicPartition(topic, index)
        for task in tasks
        for topic in inputs.get(task.subtopology_id, ())
        for index in task.partitions
    }
    counts = {name: len(topic.partitions) for name, topic in client.leaders({each.topic for each in wanted}).items()}
    return sorted(each for each in wanted if each.partition < counts[each.topic])


def _tasks_text(assignment: Assignment, prefix: str) -> str:
    """Return the text "ACTIVE: 0:[0,1]; STANDBY: 1:[2]; "."""
    roles = (
        ("ACTIVE", assignment.active_tasks),
        ("STANDBY", assignment.standby_tasks),
        ("WARMUP", assignment.warmup_tasks),
    )
    return "".join(f"{prefix}{role}: {_task_ids_text(tasks)}" for role, tasks in roles if tasks)


def _task_ids_text(tasks: Sequence[TaskIds]) -> str:
    return "".join(f"{task.subtopology_id}:[{','.join(map(str, task.partitions))}]; " for task in tasks)


def _member_document(member: Member) -> dict[str, object]:
    return {
        "memberId": member.member_id,
        "processId": member.process_id,
        "clientId": member.client_id,
        "host": member.client_host,
        "epoch": member.member_epoch,
        "topologyEpoch": member.topology_epoch,
        "assignment": _assignment_document(member.assignment),
        "targetAssignment": _assignment_document(member.target_assignment),
    }


def _assignment_document(assignment: Assignment) -> dict[str, object]:
    roles = (("active", assignment.active_tasks), ("standby", assignment.standby_tasks))
    return {role: {task.subtopology_id: task.partitions for task in tasks} for role, tasks in roles}


def print_streams_list(rows: Sequence[tuple[str, str]], *, with_state: bool) -> None:
    """Print group ids, with their states if asked to."""
    if with_state:
        print_columns(["GROUP", "STATE"], list(map(list, rows)), [column(list(map(list, rows)), 0), "{}"])
        return
    for group_id, _ in rows:
        click.echo(group_id)
