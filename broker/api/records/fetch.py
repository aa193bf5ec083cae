"""Fetch (key 1), versions 4-18: read batches from partitions; see `broker.fetch` for rounds, waiting and sessions.

5+ log start offset; 7+ incremental sessions (KIP-227); 9+ leader epochs (KIP-320); 11+ fetch from any replica, rack
(KIP-392); 12+ diverging epoch; 13+ topic ids (KIP-516); 14+ followers receive OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405);
15+ broker epoch of the follower (KIP-903); 16+ current leaders and their endpoints (KIP-951). 17 and 18 concern only
voters and the metadata log.

The Java consumer treats any error code outside of a small set as a bug and stops. `CONSUMER_ERRORS` is that set; the
handler sends consumers no other code.
"""

from collections.abc import Awaitable
from functools import partial
from typing import Final

from broker.api.pipeline.authorization import generation_of
from broker.api.pipeline.permission import CLUSTER_ACTION, CLUSTER_RESOURCE_NAME, READ_TOPIC
from broker.api.pipeline.quota import FetchQuota, mute, report_throttle
from broker.api.serving.context import RequestContext
from broker.api.serving.current_leader import LeaderHints
from broker.api.serving.fetch_parsing import TOPIC_IDS_FROM, fetch_options, positions_of, reader_of, session_request
from broker.fetch.rounds import FetchRounds
from broker.fetch.service import FetchService
from broker.fetch.sessions import OpenFetch, SessionRefused
from broker.fetch.source import FetchSource
from broker.net.request_trace import Stage
from broker.runtime.partitions.partition_reads import FetchParams
from broker.runtime.partitions.reads import FetchTarget, LogReadResult
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)

_STORAGE_ERROR_FROM: Final = 6
_TIERED_FOLLOWERS_FROM: Final = 14
_CURRENT_LEADER_FROM: Final = 16

CONSUMER_ERRORS: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_REDIRECTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

_NO_RIGHTS: Final = -1
"""The generation of the rights of a follower that is no node of the cluster."""

# Defaults that all responses share; never modified.
_NO_DIVERGENCE: Final = EpochEndOffset()
_NO_LEADER: Final = LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = SnapshotId()


class FetchHandler:
    """Answers Fetch with what the fetch service reads.

    `quota` limits consumers, None does not. A fetch by a throttled client has an empty response, and its records are
    read again by the next one.
    """

    def __init__(self, fetches: FetchService, quota: FetchQuota | None = None) -> None:
        self._fetches = fetches
        self._quota = quota

    def __call__(self, request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
        reader = reader_of(request, context.api_version)
        opened = self._open(request, context.api_version, reader)
        if isinstance(opened, SessionRefused):
            return FetchResponse(error_code=opened.error)
        options = fetch_options(request, context, reader)
        if reader.is_follower:
            context.request.is_quota_exempt = True
            options = options._replace(rights=self._fetches.rights_of(reader))
        elif self._quota is not None and self._quota.is_enabled:
            quota_bytes = self._quota.max_fetch_bytes(context.request)
            if quota_bytes is not None and quota_bytes < options.max_bytes:
                options = options._replace(max_bytes=int(quota_bytes))
        authorizer = context.authorizer
        if authorizer is not None:
            if not reader.is_follower:
                options = options._replace(
                    may_read=partial(context.allows, READ_TOPIC), rights=generation_of(authorizer)
                )
            elif not context.allows(CLUSTER_ACTION, CLUSTER_RESOURCE_NAME):
                options = options._replace(may_read=_denies, rights=_NO_RIGHTS)
        trace = context.request.trace
        if trace is not None:
            trace.enter(Stage.LOG)
        rounds = self._fetches.read(opened, options)
        if trace is not None:
            trace.enter(_stage_after(rounds))
        if rounds.is_over and not rounds.cold:
            return self._answer(context, rounds)
        return self._fetches.delay(rounds, partial(self._answer, context), context.when_input_ended)

    def _open(self, request: FetchRequest, version: int, reader: FetchParams) -> OpenFetch | SessionRefused:
        """Continue the session of a request that names known targets alone; open the targets of all other requests."""
        epoch = request.session_epoch
        if epoch > 0 and not request.forgotten_topics_data:
            by_id = version >= TOPIC_IDS_FROM
            positions = positions_of(request, by_id=by_id)
            continued = self._fetches.advance(request.session_id, epoch, positions, uses_topic_ids=by_id)
            if continued is not None:
                return continued
        return self._fetches.open(session_request(request, version, reader))

    def _answer(self, context: RequestContext, rounds: FetchRounds) -> FetchResponse:
        quota = self._quota
        if quota is not None and quota.is_enabled and not rounds.options.reader.is_follower:
            throttle_ms = quota.fetch_throttle_ms(context.request, rounds.size_bytes)
            if throttle_ms > 0:
                return self._throttled(context, rounds, throttle_ms)
        settled = rounds.settle()
        response = FetchResponse(error_code=settled.error, session_id=settled.session_id)
        entries = _Entries(self._fetches.source, context, is_follower=rounds.options.reader.is_follower)
        results = rounds.results
        topic: FetchableTopicResponse | None = None
        for target in settled.listed:
            if topic is None or topic.topic_id != target.topic_id or topic.topic != target.topic:
                topic = FetchableTopicResponse(target.topic, target.topic_id)
                response.responses.append(topic)
            topic.partitions.append(entries.entry(target, results[target]))
        if entries.hints is not None:
            response.node_endpoints = [NodeEndpoint(*address) for address in entries.hints.addresses()]
        return response

    def _throttled(self, context: RequestContext, rounds: FetchRounds, throttle_ms: int) -> FetchResponse:
        withheld = rounds.withhold()
        response = FetchResponse(error_code=withheld.error, session_id=withheld.session_id)
        mute(context.connection, throttle_ms)
        report_throttle(response, throttle_ms)
        return response


def _stage_after(rounds: FetchRounds) -> Stage:
    """Return what a fetch does after its first round: answer, read the disk, wait for remote storage or for records."""
    if rounds.is_over:
        return Stage.LOG if rounds.cold else Stage.LOCAL
    return Stage.REMOTE if rounds.remote is not None and rounds.remote.is_awaited else Stage.WAIT


def _denies(_topic: str) -> bool:
    return False


class _Entries:
    """Builds the partition entries of one response, in the version and for the reader of its request.

    `hints` is None as long as no entry names a leader.
    """

    __slots__ = ("_is_follower", "_listener", "_source", "_version", "hints")

    def __init__(self, source: FetchSource, context: RequestContext, *, is_follower: bool) -> None:
        self._source = source
        self._version = context.api_version
        self._is_follower = is_follower
        self._listener = context.listener
        self.hints: LeaderHints | None = None

    def entry(self, target: FetchTarget, result: LogReadResult) -> PartitionData:
        error, leader = result.error, _NO_LEADER
        if error is not ErrorCode.NONE:
            error = self._error_code(error)
            if error in _REDIRECTED and self._version >= _CURRENT_LEADER_FROM:
                leader = self._leader(target)
        diverging = result.diverging
        return PartitionData(
            target.index,
            error,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            _NO_DIVERGENCE if diverging is None else EpochEndOffset(diverging.epoch, diverging.end_offset),
            leader,
            _NO_SNAPSHOT if result.snapshot_id is None else SnapshotId(*result.snapshot_id),
            None if result.aborted is None else [AbortedTransaction(*one) for one in result.aborted],
            result.preferred_read_replica,
            result.records,
        )

    def _leader(self, target: FetchTarget) -> LeaderIdAndEpoch:
        if self.hints is None:
            self.hints = LeaderHints(self._source.partitions.image, self._listener)
        return LeaderIdAndEpoch(*self.hints.leader_of(self._source.topic_image(target), target.index))

    def _error_code(self, error: ErrorCode) -> ErrorCode:
        """Return the code that expresses an error to this reader in this version."""
        if error is ErrorCode.KAFKA_STORAGE_ERROR and self._version < _STORAGE_ERROR_FROM:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error in CONSUMER_ERRORS:
            return error
        is_known = error is not ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE or self._version >= _TIERED_FOLLOWERS_FROM
        return error if self._is_follower and is_known else ErrorCode.UNKNOWN_SERVER_ERROR
