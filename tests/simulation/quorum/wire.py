"""Requests and responses encoded and decoded in the newest version.

A round trip costs more than the rest of an event, so only some seeds do it. A field lost on the way would be a
difference between this simulation and a cluster.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.quorum import messages as core
from broker.quorum.wire import elections, membership, replication
from broker.quorum.wire.outgoing import outgoing
from protocol.compiler import decode, encode_bytes
from protocol.messages import Message
from tests.simulation.quorum.node import LISTENER

_READ: Final[Mapping[type, Callable[[Any], core.Request]]] = {
    core.VoteRequest: elections.decode_vote,
    core.BeginQuorumEpochRequest: elections.decode_begin,
    core.EndQuorumEpochRequest: elections.decode_end,
    core.FetchSnapshotRequest: replication.decode_fetch_snapshot,
    core.AddVoterRequest: membership.decode_add,
    core.RemoveVoterRequest: membership.decode_remove,
    core.UpdateVoterRequest: membership.decode_update,
}
_ANSWER: Final[Mapping[type, Callable[[Any], Message]]] = {
    core.VoteRequest: lambda response: elections.encode_vote_response(response, LISTENER),
    core.BeginQuorumEpochRequest: lambda response: elections.encode_begin_response(response, LISTENER),
    core.EndQuorumEpochRequest: lambda response: elections.encode_end_response(response, LISTENER),
    core.FetchRequest: lambda response: replication.encode_fetch_response(response, LISTENER),
    core.FetchSnapshotRequest: lambda response: replication.encode_fetch_snapshot_response(response, LISTENER),
    core.AddVoterRequest: membership.encode_add_response,
    core.RemoveVoterRequest: membership.encode_remove_response,
    core.UpdateVoterRequest: lambda response: membership.encode_update_response(response, LISTENER),
}


def as_received(request: core.Request, timeout_ms: float) -> core.Request:
    """Return a request as its receiver decodes it."""
    if isinstance(request, core.ProbeRequest):
        return request
    out = outgoing(request, int(timeout_ms))
    version = type(out.build(out.lowest_version)).MAX_VERSION
    message = _copied(out.build(version))
    if isinstance(request, core.FetchRequest):
        return replication.decode_fetch(message, version)
    return _READ[type(request)](message)


def as_answered(request: core.Request, response: core.Response, timeout_ms: float) -> core.Response:
    """Return a response as the requester decodes it."""
    if isinstance(request, core.ProbeRequest):
        return response
    return outgoing(request, int(timeout_ms)).read(_copied(_ANSWER[type(request)](response)), LISTENER)


def _copied(message: Message) -> Any:
    """Encode and decode a message in the newest version."""
    version = message.MAX_VERSION
    return decode(type(message), encode_bytes(message, version), version)[0]
