"""Broker registration, heartbeats, fencing and controlled shutdown (KIP-631)."""

from collections.abc import Mapping
from itertools import chain
from typing import Final, TypeVar

from broker.metadata.controller.broker_sessions import BrokerControlState
from broker.metadata.controller.leader_and_isr_updates import LeaderAndIsrUpdates
from broker.metadata.controller.result import CommandResult, ControllerResult, PartialResult
from broker.metadata.controller.split_changes import Changes, retry_after_removal, split_broker_removal, split_changes
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.cluster_image import FENCE, IN_CONTROLLED_SHUTDOWN, UNFENCE, BrokerRegistration
from broker.metadata.image.features import KRAFT_VERSION, VersionRange
from broker.metadata.image.metadata_version import METADATA_VERSION
from broker.metadata.image.partition import is_reserved_directory
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.registered_listeners import check_listeners
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId, Offset
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from protocol.primitives import Uuid

R = TypeVar("R")

_FENCE_CHANGE_VERSION: Final = 0
_SHUTDOWN_CHANGE_VERSION: Final = 1
_DIRECTORY_CHANGE_VERSION: Final = 2


class Brokers:
    """The commands that change broker registrations."""

    def __init__(self, state: ControllerState, leader_and_isr: LeaderAndIsrUpdates) -> None:
        self._state = state
        self._leader_and_isr = leader_and_isr

    # Registration

    def register(self, request: BrokerRegistrationRequest, *, now_ms: int) -> CommandResult[BrokerRegistrationResponse]:
        """Register a broker, fenced. Its epoch is the offset of the batch that holds the registration.

        An incarnation that registers again keeps its epoch and state. Raises KafkaError.
        """
        waiting = retry_after_removal(
            self._state, request.broker_id, lambda later_ms: self.register(request, now_ms=later_ms)
        )
        if waiting is not None:
            return waiting
        self._check_registration(request, now_ms)
        existing = self._state.image.brokers.get(request.broker_id)
        if existing is None:
            return self._admit(request, [])
        if existing.incarnation_id == request.incarnation_id:
            record = _registration_record(request, existing.epoch)
            record.fenced = existing.fenced
            record.in_controlled_shutdown = existing.in_controlled_shutdown
            return ControllerResult([self._versioned(record)], BrokerRegistrationResponse(broker_epoch=existing.epoch))
        changes = self._clean_up(existing, BrokerEpoch(request.previous_broker_epoch))
        return split_broker_removal(self._state, existing.id, changes, lambda records: self._admit(request, records))

    def _admit(
        self, request: BrokerRegistrationRequest, records: list[VersionedRecord]
    ) -> ControllerResult[BrokerRegistrationResponse]:
        epoch = BrokerEpoch(self._state.next_offset)
        records.append(self._versioned(_registration_record(request, epoch)))
        return ControllerResult(records, BrokerRegistrationResponse(broker_epoch=epoch))

    def _check_registration(self, request: BrokerRegistrationRequest, now_ms: int) -> None:
        state = self._state
        if request.cluster_id != state.settings.cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"broker {request.broker_id} is of cluster {request.cluster_id}, not of {state.settings.cluster_id}",
            )
        existing = state.image.brokers.get(request.broker_id)
        is_other = existing is not None and existing.incarnation_id != request.incarnation_id
        if (
            existing is not None
            and is_other
            and state.sessions.is_live(existing.id, existing.epoch, now_ms)
            and not (state.sessions.is_presumed(existing.id) and _replaces_ended_process(existing, request))
        ):
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"another broker with node.id {request.broker_id} is alive; stop it or change node.id",
            )
        if request.is_migrating_zk_broker:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "migration from ZooKeeper is not supported")
        if state.version.supports_directories:
            self._check_directories(request.broker_id, request.log_dirs)
        check_listeners(request.listeners)
        ranges = {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in request.features}
        self._check_features(ranges)

    def _check_directories(self, broker_id: int, directories: list[Uuid]) -> None:
        if not directories:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a broker must register at least one log directory")
        if any(is_reserved_directory(directory) for directory in directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "a log directory has a reserved directory id")
        if len(set(directories)) != len(directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "two log directories have the same directory id")
        for other in self._state.image.brokers.all():
            if other.id != broker_id and not set(directories).isdisjoint(other.directories):
                raise KafkaError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"broker {other.id} has registered one of the log directories",
                )

    def _check_features(self, ranges: Mapping[str, VersionRange]) -> None:
        """Check that the broker supports every finalized level, and level 0 of features that are not finalized."""
        if METADATA_VERSION not in ranges:
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION, f"the registration lacks the supported levels of {METADATA_VERSION}"
            )
        finalized = self._state.image.features.finalized()
        finalized[KRAFT_VERSION] = self._state.quorum.kraft_version
        for name in {**finalized, **ranges}:
            level, supported = finalized.get(name, 0), ranges.get(name, VersionRange(0, 0))
            if level not in supported:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the cluster runs with {name} at level {level}; "
                    f"the broker supports levels {supported.minimum} to {supported.maximum}",
                )

    def _clean_up(self, existing: BrokerRegistration, previous_epoch: BrokerEpoch) -> Changes:
        """Return the changes that remove a previous incarnation; unflushed data costs it ELR membership too."""
        stopped_cleanly = previous_epoch == existing.epoch
        if self._state.image.features.elr_enabled and not stopped_cleanly:
            return self._leader_and_isr.broker_lost_unflushed_data(existing.id)
        return self._leader_and_isr.broker_removed(existing.id)

    # Heartbeats

    def heartbeat(self, request: BrokerHeartbeatRequest, *, now_ms: int) -> CommandResult[BrokerHeartbeatResponse]:
        """Renew a session and advance the broker's state by one step. Raises KafkaError STALE_BROKER_EPOCH.

        The session is soft state and renewed at once. All other effects are records, which need not be atomic.
        """
        broker = self._registered(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch))
        waiting = retry_after_removal(self._state, broker.id, lambda later_ms: self.heartbeat(request, now_ms=later_ms))
        if waiting is not None:
            return waiting
        self._state.sessions.touch(
            broker.id,
            broker.epoch,
            fenced=broker.fenced,
            metadata_offset=Offset(request.current_metadata_offset),
            now_ms=now_ms,
        )
        # Handle failed directories first, or the broker could be elected leader of partitions in them.
        return self._remove_offline_directories(broker, request) or self._advance(broker, request)

    def _advance(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest
    ) -> CommandResult[BrokerHeartbeatResponse]:
        sessions = self._state.sessions
        is_late = sessions.precedes_unfencing(broker.id, Offset(request.current_metadata_offset))
        caught_up = request.current_metadata_offset >= self._state.registration_offsets.get(broker.id, broker.epoch)
        state = sessions.next_state(
            broker.id,
            fenced=broker.fenced,
            caught_up=caught_up,
            want_fence=request.want_fence and (broker.fenced or not is_late),
            want_shut_down=request.want_shut_down,
            leads=self._state.index.leader_count(broker.id) > 0,
        )
        if state is BrokerControlState.SHUTDOWN_NOW:
            sessions.release(broker.id)
        response = BrokerHeartbeatResponse(
            is_caught_up=caught_up,
            is_fenced=state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
            should_shut_down=state is BrokerControlState.SHUTDOWN_NOW,
        )
        return self._apply_state(broker, state, response) or ControllerResult((), response)

    def _apply_state(
        self, broker: BrokerRegistration, state: BrokerControlState, response: BrokerHeartbeatResponse
    ) -> CommandResult[BrokerHeartbeatResponse] | None:
        match state:
            case BrokerControlState.UNFENCED if broker.fenced:
                changes = chain((_fencing(broker, UNFENCE),), self._leader_and_isr.broker_unfenced(broker.id))
                return split_changes(changes, lambda records: ControllerResult(records, response, atomic=False))
            case BrokerControlState.FENCED | BrokerControlState.SHUTDOWN_NOW if not broker.fenced:
                return self._fence(broker, response)
            case BrokerControlState.CONTROLLED_SHUTDOWN if not self._state.sessions.is_shutting_down(broker.id):
                return self._begin_shutdown(broker, response)
        return None

    def _fence(self, broker: BrokerRegistration, response: R) -> CommandResult[R]:
        changes = chain(self._leader_and_isr.broker_removed(broker.id), (_fencing(broker, FENCE),))
        return split_broker_removal(
            self._state, broker.id, changes, lambda records: ControllerResult(records, response, atomic=False)
        )

    def _begin_shutdown(
        self, broker: BrokerRegistration, response: BrokerHeartbeatResponse
    ) -> CommandResult[BrokerHeartbeatResponse]:
        """Begin a controlled shutdown, or one that a previous controller did not finish."""
        begins = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
        )
        first = () if broker.in_controlled_shutdown else (VersionedRecord(begins, _SHUTDOWN_CHANGE_VERSION),)

        def finish(records: list[VersionedRecord]) -> ControllerResult[BrokerHeartbeatResponse]:
            self._state.sessions.begin_shutdown(broker.id, Offset(self._state.next_offset + len(records) - 1))
            return ControllerResult(records, response, atomic=False)

        return split_broker_removal(
            self._state, broker.id, chain(first, self._leader_and_isr.broker_removed(broker.id)), finish
        )

    def _remove_offline_directories(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest
    ) -> CommandResult[BrokerHeartbeatResponse] | None:
        """Remove offline directories, which a broker reports until they are gone from the image; then continue."""
        lost = set(request.offline_log_dirs) & set(broker.directories)
        if not lost or not self._state.version.supports_directories:
            return None
        remaining = [directory for directory in broker.directories if directory not in lost]
        record = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=remaining)
        last = (VersionedRecord(record, _DIRECTORY_CHANGE_VERSION),)
        changes = chain(self._leader_and_isr.directories_lost(broker.id, lost), last)

        def continue_heartbeat(_now_ms: int) -> CommandResult[BrokerHeartbeatResponse]:
            return self._advance(self._registered(broker.id, broker.epoch), request)

        return split_broker_removal(
            self._state, broker.id, changes, lambda records: PartialResult(records, continue_heartbeat)
        )

    # Fencing and unregistration

    def fence_expired(self, *, now_ms: int) -> CommandResult[None]:
        """Fence the unfenced broker with the oldest contact if its session has expired."""
        broker_id = self._state.sessions.expired(now_ms)
        broker = None if broker_id is None else self._state.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            if broker_id is not None:  # the session of a removed registration
                self._state.sessions.remove(broker_id)
            return ControllerResult((), None)
        return self._fence(broker, None)

    def fence_terminated_broker(self, broker_id: BrokerId, epoch: BrokerEpoch) -> CommandResult[None]:
        """Fence a broker of that epoch whose process has ended; any process may then register its id at once."""
        waiting = retry_after_removal(
            self._state, broker_id, lambda _later_ms: self.fence_terminated_broker(broker_id, epoch)
        )
        if waiting is not None:
            return waiting
        broker = self._state.image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch or broker.fenced:
            return ControllerResult((), None)
        self._state.sessions.release(broker_id)
        return self._fence(broker, None)

    def unregister(self, request: UnregisterBrokerRequest) -> CommandResult[UnregisterBrokerResponse]:
        """Remove a broker's registration, alive or not. Raises KafkaError BROKER_ID_NOT_REGISTERED."""
        waiting = retry_after_removal(self._state, request.broker_id, lambda _later_ms: self.unregister(request))
        if waiting is not None:
            return waiting
        broker = self._state.image.brokers.get(request.broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
        record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        changes = chain(self._leader_and_isr.broker_lost_unflushed_data(broker.id), (VersionedRecord(record, 0),))
        response = UnregisterBrokerResponse()
        return split_broker_removal(
            self._state, broker.id, changes, lambda records: ControllerResult(records, response, atomic=False)
        )

    def check_epoch(self, broker_id: BrokerId, epoch: BrokerEpoch) -> None:
        """Raise KafkaError STALE_BROKER_EPOCH unless the broker is registered with that epoch."""
        self._registered(broker_id, epoch)

    def _registered(self, broker_id: BrokerId, epoch: BrokerEpoch) -> BrokerRegistration:
        broker = self._state.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has broker epoch {broker.epoch}, not {epoch}"
            )
        return broker

    def _versioned(self, record: RegisterBrokerRecord) -> VersionedRecord:
        version = self._state.version
        if not version.supports_directories:
            record.log_dirs = []
        return VersionedRecord(record, version.register_broker_record_version)


def _registration_record(request: BrokerRegistrationRequest, epoch: BrokerEpoch) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in sorted(request.features, key=lambda feature: feature.name)
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=sorted(request.log_dirs),
    )


def _fencing(broker: BrokerRegistration, change: int) -> VersionedRecord:
    record = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=change)
    return VersionedRecord(record, _FENCE_CHANGE_VERSION)


def _replaces_ended_process(existing: BrokerRegistration, request: BrokerRegistrationRequest) -> bool:
    """Whether the registering process proves that the registered one has ended.

    A process locks its log directories and binds its ports. A process that has one of the registered directories and
    the same endpoints can only exist after the other ended, unless its request is late and it ended first itself. The
    proof therefore counts only against a session that a new controller presumes, not against one with heartbeats.
    """
    if not set(existing.directories) & set(request.log_dirs):
        return False
    requested = {listener.name: (listener.host, listener.port) for listener in request.listeners}
    return requested == {name: (endpoint.host, endpoint.port) for name, endpoint in existing.endpoints.items()}
