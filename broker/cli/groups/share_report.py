"""Output of share groups: the columns of kafka-share-groups, or documents for --json."""

from collections.abc import Sequence

import click

from broker.cli.groups.columns import column, dash
from broker.cli.groups.share_view import ShareGroupView, share_offsets
from broker.cli.shared.output import print_columns
from broker.client import Client
from protocol.messages.share_group_describe import Assignment, Member


def describe_share_offsets(client: Client, group: ShareGroupView, verbose: bool, as_json: bool) -> object:
    """Print a row per share partition."""
    offsets = share_offsets(client, group.group_id)
    if as_json:
        return {
            "groupId": group.group_id,
            "state": group.described.group_state,
            "partitions": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "leaderEpoch": found.leader_epoch,
                    "startOffset": found.start,
                    "lag": found.lag,
                }
                for partition, found in offsets.items()
            ],
        }
    if not offsets:
        click.echo(f"\nShare group '{group.group_id}' has no offset information.", err=True)
        return None
    headings = ["GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else []), "START-OFFSET", "LAG"]
    cells = [
        [
            group.group_id,
            partition.topic,
            str(partition.partition),
            *map(dash, ([found.leader_epoch] if verbose else []) + [found.start, found.lag]),
        ]
        for partition, found in offsets.items()
    ]
    numbers = ["{:<13}"] * (2 if verbose else 1)
    click.echo()
    print_columns(headings, cells, [column(cells, 0), column(cells, 1), "{:<10}", *numbers, "{}"])
    return None


def describe_share_members(_client: Client, group: ShareGroupView, verbose: bool, as_json: bool) -> object:
    """Print a row per member."""
    members = sorted(group.described.members, key=lambda each: each.member_id)
    if as_json:
        return {
            "groupId": group.group_id,
            "state": group.described.group_state,
            "members": [_member_document(each) for each in members],
        }
    if not members:
        return None
    headings = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    headings += [*(["MEMBER-EPOCH"] if verbose else []), "ASSIGNMENT"]
    cells = [
        [
            group.group_id,
            each.member_id,
            each.client_host,
            each.client_id,
            str(sum(len(topic.partitions) for topic in each.assignment.topic_partitions)),
            *([str(each.member_epoch)] if verbose else []),
            _assignment_text(each.assignment),
        ]
        for each in members
    ]
    formats = [*(column(cells, index) for index in range(4)), "{:<12}", *(["{:<13}"] if verbose else []), "{}"]
    click.echo()
    print_columns(headings, cells, formats)
    return None


def describe_share_states(_client: Client, group: ShareGroupView, verbose: bool, as_json: bool) -> object:
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
            "assignmentEpoch": epochs[1],
            "members": len(described.members),
        }
    headings = ["GROUP", "COORDINATOR (ID)", "STATE"]
    headings += (["GROUP-EPOCH", "ASSIGNMENT-EPOCH"] if verbose else []) + ["#MEMBERS"]
    cells = [group.group_id, f"{host}:{port}  ({node_id})", described.group_state]
    cells += (list(map(str, epochs)) if verbose else []) + [str(len(described.members))]
    formats = [column([cells], 0), f"{{:<{max(25, len(cells[1]))}}}", "{:<15}"]
    click.echo()
    print_columns(headings, [cells], [*formats, *(["{:<12}", "{:<17}"] if verbose else []), "{}"])
    return None


def print_share_list(rows: Sequence[tuple[str, str]], *, with_state: bool) -> None:
    """Print group ids, with their states if asked to."""
    if with_state:
        cells = list(map(list, rows))
        print_columns(["GROUP", "STATE"], cells, [column(cells, 0), "{}"])
        return
    for group_id, _ in rows:
        click.echo(group_id)


def _assignment_text(assignment: Assignment) -> str:
    """Return the text "t1:0,1;t2:0"."""
    topics = sorted(assignment.topic_partitions, key=lambda each: each.topic_name)
    return ";".join(f"{topic.topic_name}:{','.join(map(str, sorted(topic.partitions)))}" for topic in topics)


def _member_document(member: Member) -> dict[str, object]:
    return {
        "consumerId": member.member_id,
        "host": member.client_host,
        "clientId": member.client_id,
        "rackId": member.rack_id,
        "epoch": member.member_epoch,
        "subscribedTopics": member.subscribed_topic_names,
        "assignment": {topic.topic_name: topic.partitions for topic in member.assignment.topic_partitions},
    }
