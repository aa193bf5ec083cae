"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup as clients of each version see them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from broker.api.groups.heartbeat import HeartbeatHandler
from broker.api.groups.join_group import JoinGroupHandler
from broker.api.groups.leave_group import LeaveGroupHandler
from broker.api.groups.sync_group import SyncGroupHandler
from broker.groups.caller import java_address
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.harnesses.group_coordinator_harness import GroupCoordinatorHarness, context


@pytest_asyncio.fixture
async def harness() -> AsyncIterator[GroupCoordinatorHarness]:
    made = GroupCoordinatorHarness()
    yield made
    made.close()


def join_request(member_id: str = "", group_id: str = "g", session_ms: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"metadata")],
    )


async def joined(harness: GroupCoordinatorHarness, version: int = 9) -> JoinGroupResponse:
    """Join one member, in as many rounds as the version takes."""
    handler = JoinGroupHandler(harness.groups)
    response = await handler(join_request(), context(version))
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = await handler(join_request(response.member_id), context(version))
    assert response.error_code == ErrorCode.NONE
    return response


@pytest.mark.parametrize("version", range(10))
async def test_lone_member_joins_syncs_heartbeats_and_leaves_in_every_version(
    harness: GroupCoordinatorHarness, version: int
) -> None:
    response = await joined(harness, version)
    assert encode_bytes(response, version)
    assert (response.generation_id, response.leader, response.protocol_name) == (1, response.member_id, "range")
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=response.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(response.member_id, b"all")],
    )
    synced = await SyncGroupHandler(harness.groups)(sync, context(min(version, 5)))
    assert (synced.error_code, synced.assignment) == (0, b"all")
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=response.member_id)
    assert HeartbeatHandler(harness.groups)(heartbeat, context(min(version, 4))).error_code == 0
    leave = LeaveGroupRequest(group_id="g", member_id=response.member_id, members=[MemberIdentity(response.member_id)])
    left = await LeaveGroupHandler(harness.groups)(leave, context(min(version, 5)))
    assert left.error_code == 0


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None), (9, None)])
async def test_missing_protocol_is_empty_in_old_versions_and_null_in_newer_ones(
    harness: GroupCoordinatorHarness, version: int, name: str | None
) -> None:
    response = await JoinGroupHandler(harness.groups)(join_request("unknown"), context(version))
    assert (response.error_code, response.protocol_name) == (ErrorCode.UNKNOWN_MEMBER_ID, name)
    assert encode_bytes(response, version)


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
async def test_session_timeout_out_of_bounds_is_refused(harness: GroupCoordinatorHarness, session_ms: int) -> None:
    response = await JoinGroupHandler(harness.groups)(join_request("m", session_ms=session_ms), context(9))
    assert (response.error_code, response.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")


async def test_group_id_is_required(harness: GroupCoordinatorHarness) -> None:
    assert (await JoinGroupHandler(harness.groups)(join_request(group_id=""), context(9))).error_code == 24
    sync = SyncGroupRequest(protocol_type="consumer", protocol_name="range")
    assert (await SyncGroupHandler(harness.groups)(sync, context(5))).error_code == 24
    assert HeartbeatHandler(harness.groups)(HeartbeatRequest(), context(4)).error_code == 24
    assert (await LeaveGroupHandler(harness.groups)(LeaveGroupRequest(), context(5))).error_code == 24


@pytest.mark.parametrize(
    ("version", "error"), [(4, ErrorCode.UNKNOWN_MEMBER_ID), (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
)
async def test_sync_requires_the_protocol_from_version_5_on(
    harness: GroupCoordinatorHarness, version: int, error: ErrorCode
) -> None:
    response = await SyncGroupHandler(harness.groups)(SyncGroupRequest(group_id="g"), context(version))
    assert response.error_code == error


@pytest.mark.parametrize(("version", "top_level", "members"), [(2, 25, 0), (3, 0, 1)])
async def test_error_of_the_member_is_the_responses_before_version_3(
    harness: GroupCoordinatorHarness, version: int, top_level: int, members: int
) -> None:
    request = LeaveGroupRequest(group_id="g", member_id="unknown", members=[MemberIdentity("unknown")])
    response = await LeaveGroupHandler(harness.groups)(request, context(version))
    assert (response.error_code, len(response.members)) == (top_level, members)
    assert encode_bytes(response, version) is not None


async def test_broker_that_does_not_lead_the_partition_is_not_the_coordinator() -> None:
    harness = GroupCoordinatorHarness(elected=False)
    assert (await JoinGroupHandler(harness.groups)(join_request("m"), context(9))).error_code == 16
    assert HeartbeatHandler(harness.groups)(HeartbeatRequest(group_id="g"), context(4)).error_code == 16
    leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity("m")])
    assert (await LeaveGroupHandler(harness.groups)(leave, context(5))).error_code == 16
    harness.close()


async def test_heartbeat_succeeds_while_the_group_is_loading() -> None:
    harness = GroupCoordinatorHarness(elected=False)
    for log in harness.logs:
        log.add([(b"\x00\x63", b"")])
    harness.create_topics(**{GROUP_METADATA_TOPIC: 2})
    assert (await JoinGroupHandler(harness.groups)(join_request("m"), context(9))).error_code == 14
    assert HeartbeatHandler(harness.groups)(HeartbeatRequest(group_id="g"), context(4)).error_code == 0
    harness.close()


async def test_lost_leadership_fails_parked_members(harness: GroupCoordinatorHarness) -> None:
    first = await joined(harness)
    newcomer = await JoinGroupHandler(harness.groups)(join_request(), context(9))
    parked = asyncio.ensure_future(JoinGroupHandler(harness.groups)(join_request(newcomer.member_id), context(9)))
    await asyncio.sleep(0)
    harness.lead(GROUP_METADATA_TOPIC, {0: (2, 1), 1: (2, 1)})
    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=first.member_id)
    assert HeartbeatHandler(harness.groups)(heartbeat, context(4)).error_code == ErrorCode.NOT_COORDINATOR


async def test_disconnected_parked_client_affects_no_other(harness: GroupCoordinatorHarness) -> None:
    first = await joined(harness)
    newcomer = await JoinGroupHandler(harness.groups)(join_request(), context(9))
    parked = asyncio.ensure_future(JoinGroupHandler(harness.groups)(join_request(newcomer.member_id), context(9)))
    await asyncio.sleep(0)
    parked.cancel()
    again = await JoinGroupHandler(harness.groups)(join_request(first.member_id), context(9))
    assert (again.generation_id, len(again.members)) == (2, 2)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("fe80::ab:1", "/fe80:0:0:0:0:0:ab:1"),
        ("::ffff:10.0.0.1", "/10.0.0.1"),
        ("somewhere", "/somewhere"),
    ],
)
def test_addresses_have_javas_format(host: str, text: str) -> None:
    assert java_address(host) == text
