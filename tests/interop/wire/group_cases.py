"""Conversations of members with consumer groups and classic groups: joins, epochs, static members, other protocols.

Each version has groups of its own, since a conversation changes them. No step may wait for another member, because all
steps share a connection: classic groups have one member at a time.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.messages import Message
from protocol.messages import consumer_group_describe as cd
from protocol.messages import consumer_group_heartbeat as ch
from protocol.messages import heartbeat as hb
from protocol.messages import join_group as jg
from protocol.messages import leave_group as lv
from protocol.messages import offset_commit as oc
from protocol.messages import share_group_heartbeat as sh
from protocol.messages import sync_group as sg
from protocol.messages.common_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.interop.wire.harness import WireHarness

Scenario = Generator[tuple[str, Message], Message | None, None]

_ONE, _THREE = "compacted", "many"
"""Topics of one partition and of three."""


def beat(group_id: str, member: str, epoch: int, **fields: Any) -> ch.ConsumerGroupHeartbeatRequest:
    """Return a heartbeat: the whole state of a new member, else the epoch alone, with the given fields replaced."""
    request = ch.ConsumerGroupHeartbeatRequest(group_id, member, epoch)
    if epoch == 0:
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, [_ONE], []
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def owning(harness: WireHarness, topic: str, *partitions: int) -> list[ch.ConsumerGroupHeartbeatRequestTopicPartitions]:
    return [ch.ConsumerGroupHeartbeatRequestTopicPartitions(harness.topic_ids[topic], list(partitions))]


def protocols(*topics: str, name: str = "range") -> list[jg.JoinGroupRequestProtocol]:
    subscription = ConsumerProtocolSubscription(topics=list(topics))
    return [jg.JoinGroupRequestProtocol(name, bytes(2) + encode_bytes(subscription, 0))]


def join(group_id: str, member: str = "", instance: str | None = None, **fields: Any) -> jg.JoinGroupRequest:
    request = jg.JoinGroupRequest(group_id, 30_000, 30_000, member, instance, "consumer", protocols(_ONE))
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def sync(group_id: str, member: str, generation: int, instance: str | None = None, **fields: Any) -> Message:
    request = sg.SyncGroupRequest(group_id, generation, member, instance, "consumer", "range")
    assignment = bytes(2) + encode_bytes(ConsumerProtocolAssignment(), 0)
    request.assignments = [sg.SyncGroupRequestAssignment(member, assignment)]
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def commit(group_id: str, member: str, epoch: int) -> Message:
    topics = [oc.OffsetCommitRequestTopic(_ONE, partitions=[oc.OffsetCommitRequestPartition(0, 5)])]
    return oc.OffsetCommitRequest(group_id, epoch, member, topics=topics)


# ---- consumer groups


def _forms(harness: WireHarness, group_id: str, version: int) -> Scenario:
    """Heartbeats that are refused by what they say alone."""
    yield "a blank group id", beat(" ", "m", 0)
    yield "an empty group id", beat("", "m", 0)
    yield "a blank member id at epoch 1", beat(group_id, " ", 1)
    yield "no member id that leaves", beat(group_id, "", -1)
    if version:
        yield "no member id that joins", beat(group_id, "", 0)
        yield "an invalid expression", beat(group_id, "m", 0, subscribed_topic_regex="*")
        yield "an expression of an unknown class", beat(group_id, "m", 0, subscribed_topic_regex="[[:no:]]")
    yield "an empty instance id", beat(group_id, "m", 0, instance_id="")
    yield "a blank rack", beat(group_id, "m", 0, rack_id=" ")
    yield "no rebalance timeout", beat(group_id, "m", 0, rebalance_timeout_ms=-1)
    yield "no owned partitions", beat(group_id, "m", 0, topic_partitions=None)
    yield "owned partitions of a new member", beat(group_id, "m", 0, topic_partitions=owning(harness, _ONE, 0))
    yield "no subscription", beat(group_id, "m", 0, subscribed_topic_names=None)
    yield "an unknown assignor", beat(group_id, "m", 0, server_assignor="no-such-assignor")
    yield "a dynamic member that pauses", beat(group_id, "m", -2)
    yield "an empty instance id that pauses", beat(group_id, "m", -2, instance_id="")
    yield "epoch -3", beat(group_id, "m", -3)
    yield "an unknown group", beat("wire-unknown", "m", 1)
    yield "an unknown group left", beat("wire-unknown", "m", -1)
    yield "an unknown group paused", beat("wire-unknown", "m", -2, instance_id="i")


def _dynamic(harness: WireHarness, group_id: str, version: int) -> Scenario:
    """One member: epochs, subscriptions, and commits with its epoch."""
    yield "a member joins", beat(group_id, "m", 0)
    yield "the same epoch", beat(group_id, "m", 1)
    yield (
        "the same epoch with all fields",
        beat(
            group_id,
            "m",
            1,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[_ONE],
            topic_partitions=owning(harness, _ONE, 0),
        ),
    )
    yield "the member joins again", beat(group_id, "m", 0)
    yield "a greater epoch", beat(group_id, "m", 2)
    yield "another assignor", beat(group_id, "m", 1, server_assignor="range")
    yield "another topic", beat(group_id, "m", 1, subscribed_topic_names=[_ONE, _THREE])
    yield "the previous epoch", beat(group_id, "m", 1)
    yield "the previous epoch with owned partitions", beat(group_id, "m", 1, topic_partitions=owning(harness, _ONE, 0))
    foreign = owning(harness, "plain", 0)
    yield "the previous epoch with foreign partitions", beat(group_id, "m", 1, topic_partitions=foreign)
    yield "a commit of the member", commit(group_id, "m", 2)
    yield "a commit of a stale epoch", commit(group_id, "m", 1)
    yield "a commit of a greater epoch", commit(group_id, "m", 7)
    yield "a commit of an unknown member", commit(group_id, "nobody", 2)
    yield "a commit without member", commit(group_id, "", -1)
    yield "fewer topics, partitions kept", beat(group_id, "m", 2, subscribed_topic_names=[_ONE])
    yield (
        "partitions not given up",
        beat(group_id, "m", 2, topic_partitions=owning(harness, _ONE, 0) + owning(harness, _THREE, 0, 1, 2)),
    )
    yield "partitions given up", beat(group_id, "m", 2, topic_partitions=owning(harness, _ONE, 0))
    yield "no topics", beat(group_id, "m", 3, subscribed_topic_names=[], topic_partitions=owning(harness, _ONE, 0))
    yield "nothing owned", beat(group_id, "m", 3, topic_partitions=[])
    yield "a missing topic", beat(group_id, "m", 4, subscribed_topic_names=["wire-nowhere"])
    yield "an unknown member", beat(group_id, "nobody", 1)
    yield "an unknown member leaves", beat(group_id, "nobody", -1)
    yield "an unknown instance id", beat(group_id, "m", 1, instance_id="i")
    yield "the description", cd.ConsumerGroupDescribeRequest([group_id])
    yield "a share member", sh.ShareGroupHeartbeatRequest(group_id, "s", 0, None, [_ONE])
    yield "the member leaves", beat(group_id, "m", -1)
    yield "the member leaves again", beat(group_id, "m", -1)
    yield "the description of an empty group", cd.ConsumerGroupDescribeRequest([group_id])


def _static(harness: WireHarness, group_id: str, version: int) -> Scenario:
    """Static members: a held instance id, a pause, a replacement, and the fenced member."""
    yield "a static member joins", beat(group_id, "s", 0, instance_id="i")
    yield "a held instance id", beat(group_id, "t", 0, instance_id="i")
    yield "another member of the instance id", beat(group_id, "t", 1, instance_id="i")
    yield "another member of the instance id leaves", beat(group_id, "t", -1, instance_id="i")
    yield "another member of the instance id pauses", beat(group_id, "t", -2, instance_id="i")
    yield "the instance id unknown", beat(group_id, "s", 1, instance_id="j")
    yield "an unknown instance id pauses", beat(group_id, "s", -2, instance_id="j")
    yield "the static member pauses", beat(group_id, "s", -2, instance_id="i")
    yield "the paused member", beat(group_id, "s", 1, instance_id="i")
    yield "a paused description", cd.ConsumerGroupDescribeRequest([group_id])
    yield "a member takes the instance id", beat(group_id, "t", 0, instance_id="i")
    yield "the replaced member", beat(group_id, "s", 1, instance_id="i")
    yield "the replaced member without instance id", beat(group_id, "s", 1)
    yield "the replaced member joins", beat(group_id, "s", 0, instance_id="i")
    yield (
        "the static member with new topics joins again",
        beat(group_id, "t", 0, instance_id="i", subscribed_topic_names=[_THREE]),
    )
    yield "a static description", cd.ConsumerGroupDescribeRequest([group_id])
    yield "the static member leaves", beat(group_id, "t", -1, instance_id="i")


def _mixed(harness: WireHarness, group_id: str, version: int) -> Scenario:
    """A classic member in a consumer group, and the way back to a classic group."""
    yield "a first member", beat(group_id, "m", 0)
    required = yield "a classic client", join(group_id)
    assert isinstance(required, jg.JoinGroupResponse)
    member = required.member_id
    yield "a classic client of another type", join(group_id, member, protocol_type="connect")
    malformed = [jg.JoinGroupRequestProtocol("range", b"\0")]
    yield "a classic client with malformed metadata", join(group_id, member, protocols=malformed)
    yield "a classic client joins", join(group_id, member)
    yield "a sync of a stale generation", sync(group_id, member, 1)
    yield "a sync of another protocol", sync(group_id, member, 2, protocol_name="roundrobin")
    yield "a sync of a consumer", sync(group_id, "m", 1)
    yield "a sync", sync(group_id, member, 2)
    yield "a classic heartbeat", hb.HeartbeatRequest(group_id, 2, member)
    yield "a classic heartbeat of a stale generation", hb.HeartbeatRequest(group_id, 1, member)
    yield "a classic heartbeat of a consumer", hb.HeartbeatRequest(group_id, 1, "m")
    yield "a classic commit", commit(group_id, member, 2)
    yield "a classic commit of a stale generation", commit(group_id, member, 1)
    yield "a mixed heartbeat", beat(group_id, "m", 1)
    yield "a consumer leaves by LeaveGroup", lv.LeaveGroupRequest(group_id, "", [lv.MemberIdentity("m")])
    yield "the group is no consumer group", beat(group_id, "m", 2)
    yield "a consumer makes it one again", beat(group_id, "m", 0, subscribed_topic_names=[_THREE])
    yield "the last consumer leaves", beat(group_id, "m", -1)
    yield "the classic member leaves", lv.LeaveGroupRequest(group_id, "", [lv.MemberIdentity(member)])
    yield "a consumer replaces the empty group", beat(group_id, "n", 0)
    yield "the new consumer leaves", beat(group_id, "n", -1)


def consumer_heartbeat(harness: WireHarness, version: int) -> Scenario:
    group_id = f"wire-consumer-{version}"
    yield from _forms(harness, group_id, version)
    yield from _dynamic(harness, group_id, version)
    yield from _static(harness, f"{group_id}-static", version)
    yield from _mixed(harness, f"{group_id}-mixed", version)


def consumer_describe(harness: WireHarness, version: int) -> Scenario:
    yield "no group", cd.ConsumerGroupDescribeRequest([])
    yield "an unknown group", cd.ConsumerGroupDescribeRequest(["wire-unknown", ""])
    yield "an empty group", cd.ConsumerGroupDescribeRequest(["wire-consumer-1"])
    yield "a group with operations", cd.ConsumerGroupDescribeRequest(["wire-consumer-1"], True)


# ---- classic groups


def _conversation(api: ApiKey) -> Callable[[WireHarness, int], Scenario]:
    """Return the conversation with the requests of one API in the scenario's version, and others in a recent one."""

    def scenario(harness: WireHarness, version: int) -> Scenario:
        group_id = f"wire-{api.name}-{version}"
        answer = yield "talk: a client joins", join(group_id)
        assert isinstance(answer, jg.JoinGroupResponse)
        member = answer.member_id
        yield "talk: the member joins", join(group_id, member)
        yield "talk: another type", join(group_id, protocol_type="connect")
        yield "talk: another protocol", join(group_id, protocols=protocols(_ONE, name="other"))
        yield "talk: a heartbeat before the sync", hb.HeartbeatRequest(group_id, 1, member)
        yield "talk: a sync of another generation", sync(group_id, member, 7)
        yield "talk: a sync of an unknown member", sync(group_id, "nobody", 1)
        if api is not ApiKey.SYNC_GROUP or version >= 5:
            yield "talk: a sync of another type", sync(group_id, member, 1, protocol_type="connect")
            yield "talk: a sync of another protocol", sync(group_id, member, 1, protocol_name="other")
        yield "talk: a sync", sync(group_id, member, 1)
        yield "talk: a heartbeat", hb.HeartbeatRequest(group_id, 1, member)
        yield "talk: a heartbeat of a stale generation", hb.HeartbeatRequest(group_id, 0, member)
        yield "talk: a heartbeat of a later generation", hb.HeartbeatRequest(group_id, 2, member)
        yield "talk: a heartbeat of an unknown member", hb.HeartbeatRequest(group_id, 1, "nobody")
        yield "talk: a consumer heartbeat", beat(group_id, "m", 1)
        yield "talk: a share heartbeat", sh.ShareGroupHeartbeatRequest(group_id, "s", 0, None, [_ONE])
        yield "talk: the leader joins again", join(group_id, member)
        yield "talk: the second sync", sync(group_id, member, 2)
        yield "talk: an unknown member leaves", _leave(api, version, group_id, "nobody")
        yield "talk: the member leaves", _leave(api, version, group_id, member)
        yield "talk: the member leaves again", _leave(api, version, group_id, member)
        yield "talk: a heartbeat after the end", hb.HeartbeatRequest(group_id, 2, member)
        yield "talk: a sync after the end", sync(group_id, member, 2)
        if (api is ApiKey.JOIN_GROUP and version < 5) or (api is not ApiKey.JOIN_GROUP and version < 3):
            return
        yield from _static_conversation(f"{group_id}-static")

    return scenario


def _static_conversation(group_id: str) -> Scenario:
    answer = yield "static: a member joins", join(group_id, instance="i")
    assert isinstance(answer, jg.JoinGroupResponse)
    former = answer.member_id
    yield "static: a sync", sync(group_id, former, 1, "i")
    yield "static: a heartbeat", hb.HeartbeatRequest(group_id, 1, former, "i")
    yield "static: a heartbeat without instance id", hb.HeartbeatRequest(group_id, 1, former)
    yield "static: a heartbeat of an unknown instance id", hb.HeartbeatRequest(group_id, 1, former, "j")
    yield "static: a heartbeat of an empty instance id", hb.HeartbeatRequest(group_id, 1, former, "")
    answer = yield "static: a process takes the instance id", join(group_id, instance="i")
    assert isinstance(answer, jg.JoinGroupResponse)
    member, generation = answer.member_id, answer.generation_id
    yield "static: a sync of the new member", sync(group_id, member, generation, "i")
    yield "static: a heartbeat of the new member", hb.HeartbeatRequest(group_id, generation, member, "i")
    yield "static: a heartbeat of the former member", hb.HeartbeatRequest(group_id, generation, former, "i")
    yield "static: a sync of the former member", sync(group_id, former, generation, "i")
    yield "static: the former member joins", join(group_id, former, "i")
    leavers = (former, "i"), ("nobody", "j"), ("", "j"), ("", "i")
    members = [lv.MemberIdentity(*each) for each in leavers]
    yield "static: leaving", lv.LeaveGroupRequest(group_id, "", members)


def _leave(api: ApiKey, version: int, group_id: str, member: str) -> Message:
    if api is ApiKey.LEAVE_GROUP and version < 3:
        return lv.LeaveGroupRequest(group_id, member)
    return lv.LeaveGroupRequest(group_id, "", [lv.MemberIdentity(member)])


def with_conversations(
    scenarios: Mapping[ApiKey, Callable[[WireHarness, int], Iterable[tuple[str, Message]]]],
) -> Mapping[ApiKey, Callable[[WireHarness, int], Scenario]]:
    """Return the scenarios of the classic APIs, each followed by a conversation."""

    def joined(api: ApiKey) -> Callable[[WireHarness, int], Scenario]:
        def scenario(harness: WireHarness, version: int) -> Scenario:
            yield from scenarios[api](harness, version)
            yield from _conversation(api)(harness, version)

        return scenario

    return {api: joined(api) for api in scenarios}


CONSUMER_SCENARIOS: Mapping[ApiKey, Callable[[WireHarness, int], Scenario]] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_describe,
}
