"""Broker registration, heartbeats, fencing and controlled shutdown in the controller (KIP-631)."""

import pytest

from broker.metadata.controller.configs import AlterOperation, ConfigOperation
from broker.metadata.controller.controller import LocalBroker
from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.features import VersionRange
from broker.metadata.image.partition import NO_LEADER, LeaderRecoveryState
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from protocol.messages.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from protocol.primitives import Uuid
from tests.broker.metadata.images import Cluster, directory_of, incarnation_of, uuid


def refusal(cluster: Cluster, request: BrokerRegistrationRequest) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        cluster.controller.register_broker(request, now_ms=cluster.now_ms)
    return caught.value.code


def elsewhere(request: BrokerRegistrationRequest) -> BrokerRegistrationRequest:
    """Return a request of the same broker id with other endpoints and directories."""
    for listener in request.listeners:
        listener.host = "elsewhere"
    return request


class TestRegistration:
    def test_broker_registers_fenced_with_its_record_offset_as_epoch(self) -> None:
        cluster = Cluster()
        offset = cluster.controller.last_offset + 1
        assert cluster.register(1, rack="r1") == offset
        broker = cluster.image.brokers.get(1)
        assert broker is not None
        assert (broker.epoch, broker.fenced, broker.rack) == (offset, True, "r1")
        assert broker.directories == (directory_of(1),)
        assert broker.features["metadata.version"] == VersionRange(7, 29)

    def test_cluster_id_is_checked_first(self) -> None:
        cluster = Cluster()
        request = cluster.registration(1)
        request.cluster_id = "other"
        request.log_dirs = []
        assert refusal(cluster, request) is ErrorCode.INCONSISTENT_CLUSTER_ID

    def test_live_broker_cannot_be_replaced_until_its_session_ends(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        assert (
            refusal(cluster, elsewhere(cluster.registration(1, incarnation=2)))
            is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        )
        cluster.now_ms += cluster.settings.session_timeout_ms
        assert cluster.register(1, incarnation=2) == cluster.controller.last_offset

    def test_late_registration_of_an_ended_process_does_not_replace_its_successor(self) -> None:
        cluster = Cluster()
        late = cluster.registration(1)  # on the same directories and ports, and delayed on the way
        assert cluster.register(1, incarnation=2) > 0
        cluster.heartbeat(1, want_fence=True)
        assert refusal(cluster, late) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        cluster.heartbeat(1)
        assert refusal(cluster, late) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert cluster.image.brokers.is_active(1)

    def test_broker_with_same_directories_and_ports_replaces_a_presumed_session(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        cluster.fail_over()
        other_disk = cluster.registration(1, incarnation=2)
        other_disk.log_dirs = [directory_of(7)]
        assert refusal(cluster, other_disk) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert cluster.register(1, incarnation=2) == cluster.controller.last_offset

    def test_broker_without_heartbeat_can_be_replaced_at_once(self) -> None:
        cluster = Cluster()
        cluster.register(1)
        assert cluster.register(1, incarnation=2) == cluster.controller.last_offset

    def test_starting_broker_cannot_be_replaced(self) -> None:
        cluster = Cluster()
        cluster.register(1)
        cluster.heartbeat(1, want_fence=True)
        assert (
            refusal(cluster, elsewhere(cluster.registration(1, incarnation=2)))
            is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        )
        cluster.now_ms += cluster.settings.session_timeout_ms
        assert cluster.register(1, incarnation=2) == cluster.controller.last_offset

    def test_broker_with_expired_session_can_be_replaced(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        cluster.expire_session(1)
        request = elsewhere(cluster.registration(1, incarnation=2))
        assert cluster.write(cluster.controller.register_broker(request, now_ms=cluster.now_ms)).broker_epoch > 0

    def test_broker_after_shutdown_can_be_replaced_at_once(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
        request = elsewhere(cluster.registration(1, incarnation=2))
        assert cluster.write(cluster.controller.register_broker(request, now_ms=cluster.now_ms)).broker_epoch > 0

    def test_repeated_registration_keeps_epoch_and_state(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        before = cluster.image.brokers.get(1)
        request = cluster.registration(1, rack="moved")
        epoch = cluster.write(cluster.controller.register_broker(request, now_ms=cluster.now_ms)).broker_epoch
        after = cluster.image.brokers.get(1)
        assert before is not None
        assert after == before._replace(rack="moved")
        assert epoch == before.epoch

    @pytest.mark.parametrize(
        "directories",
        [[], [uuid(5), uuid(5)], [Uuid(bytes(15) + b"\x05")], [directory_of(2)]],
        ids=["none", "twice", "reserved", "another broker's"],
    )
    def test_invalid_directories_are_refused(self, directories: list[Uuid]) -> None:
        cluster = Cluster()
        cluster.register(2)
        request = cluster.registration(1)
        request.log_dirs = directories
        assert refusal(cluster, request) is ErrorCode.INVALID_REGISTRATION

    @pytest.mark.parametrize(("host", "port", "protocol"), [("", 9092, 0), ("h", 0, 0), ("h", 9092, 7)])
    def test_unreachable_listeners_are_refused(self, host: str, port: int, protocol: int) -> None:
        cluster = Cluster()
        request = cluster.registration(1)
        listener = request.listeners[0]
        listener.host, listener.port, listener.security_protocol = host, port, protocol
        assert refusal(cluster, request) is ErrorCode.INVALID_REGISTRATION

    def test_registration_must_state_metadata_version_levels(self) -> None:
        cluster = Cluster()
        request = cluster.registration(1)
        request.features = [each for each in request.features if each.name != "metadata.version"]
        assert refusal(cluster, request) is ErrorCode.INVALID_REGISTRATION

    def test_broker_must_support_the_finalized_metadata_version(self) -> None:
        cluster = Cluster()
        request = cluster.registration(1)
        request.features.append(Feature("to.come", 1, 3))
        assert refusal(cluster, request) is ErrorCode.UNSUPPORTED_VERSION
        request.features[-1] = Feature("to.come", 0, 3)
        assert cluster.write(cluster.controller.register_broker(request, now_ms=cluster.now_ms)).broker_epoch > 0

    @pytest.mark.parametrize("feature", ["metadata.version", "group.version", "kraft.version"])
    def test_every_finalized_feature_must_be_supported(self, feature: str) -> None:
        cluster = Cluster()
        request = cluster.registration(1)
        request.features = [each for each in request.features if each.name != feature]
        if feature != "metadata.version":
            assert refusal(cluster, request) is ErrorCode.UNSUPPORTED_VERSION
        request.features.append(Feature(feature, 0, 99))
        cluster.controller.register_broker(request, now_ms=cluster.now_ms)

    def test_zookeeper_migration_is_refused(self) -> None:
        cluster = Cluster()
        request = cluster.registration(1)
        request.is_migrating_zk_broker = True
        assert refusal(cluster, request) is ErrorCode.BROKER_ID_NOT_REGISTERED


class TestHeartbeat:
    def test_unknown_broker_and_old_epoch_are_stale(self) -> None:
        cluster = Cluster()
        cluster.register(1)
        for request in (BrokerHeartbeatRequest(broker_id=9), BrokerHeartbeatRequest(broker_id=1, broker_epoch=0)):
            with pytest.raises(KafkaError) as caught:
                cluster.controller.heartbeat(request, now_ms=cluster.now_ms)
            assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH

    def test_broker_is_unfenced_once_it_has_read_its_registration(self) -> None:
        cluster = Cluster()
        epoch = cluster.register(1)
        behind = cluster.heartbeat(1, offset=epoch - 1)
        assert (behind.is_caught_up, behind.is_fenced) == (False, True)
        waiting = cluster.heartbeat(1, want_fence=True)
        assert (waiting.is_caught_up, waiting.is_fenced) == (True, True)
        ready = cluster.heartbeat(1)
        assert (ready.is_caught_up, ready.is_fenced) == (True, False)
        assert cluster.image.brokers.is_active(1)

    def test_registration_after_clean_up_records_counts_by_its_own_offset(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2)
        cluster.create_topic("t", [[1, 2]])
        cluster.now_ms += cluster.settings.session_timeout_ms
        epoch = cluster.register(1, incarnation=2)
        assert epoch < cluster.controller.last_offset
        assert not cluster.heartbeat(1, want_fence=True, offset=epoch).is_caught_up
        assert cluster.heartbeat(1, want_fence=True).is_caught_up

    def test_broker_that_requests_fencing_loses_its_leaderships(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2)
        cluster.create_topic("t", [[1, 2]])
        assert cluster.heartbeat(1, want_fence=True).is_fenced
        partition = cluster.partition("t")
        assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)

    def test_late_heartbeat_of_the_start_does_not_fence_a_running_broker(self) -> None:
        cluster = Cluster()
        cluster.register(1)
        start = cluster.controller.last_offset
        cluster.heartbeat(1)
        assert not cluster.heartbeat(1, want_fence=True, offset=start).is_fenced
        assert cluster.image.brokers.is_active(1)
        cluster.fail_over()
        assert not cluster.heartbeat(1, want_fence=True, offset=start).is_fenced
        assert cluster.image.brokers.is_active(1)

    def test_broker_that_has_read_its_unfencing_may_request_fencing(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        cluster.fail_over()
        assert cluster.heartbeat(1, want_fence=True).is_fenced
        assert not cluster.image.brokers.is_active(1)

    def test_silent_broker_is_fenced_when_its_session_expires(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2)
        cluster.create_topic("t", [[1, 2], [2, 1]])
        cluster.expire_session(1, others=(2,))
        assert not cluster.image.brokers.is_active(1)
        assert cluster.image.brokers.is_active(2)
        assert [cluster.partition("t", index).leader for index in (0, 1)] == [2, 2]

    def test_ended_broker_is_fenced_and_can_be_replaced_by_any_process(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2)
        cluster.create_topic("t", [[1, 2]])
        epoch = cluster.image.brokers.brokers[1].epoch
        cluster.fence_terminated_broker(1, epoch - 1)
        assert cluster.image.brokers.is_active(1), "the epoch is that of a previous incarnation"
        cluster.fence_terminated_broker(1, epoch)
        assert not cluster.image.brokers.is_active(1)
        assert cluster.partition("t").leader == 2
        assert cluster.register(1, incarnation=2) > epoch

    def test_unfenced_broker_leads_leaderless_partitions_again(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        cluster.create_topic("t", [[1]])
        cluster.expire_session(1)
        assert cluster.partition("t").leader == NO_LEADER
        assert cluster.partition("t").isr == (1,)
        assert not cluster.heartbeat(1).is_fenced
        assert (cluster.partition("t").leader, cluster.partition("t").leader_epoch) == (1, 2)

    def test_unfencing_elects_other_brokers_where_eligible(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2, 3)
        cluster.create_topic("t", [[1, 2]])
        cluster.expire_session(2, others=(1, 3))
        cluster.expire_session(1, others=(3,))
        cluster.heartbeat(2)
        assert cluster.partition("t").leader == NO_LEADER, "the broker is no longer in sync"
        allow = ConfigOperation("unclean.leader.election.enable", AlterOperation.SET, "true")
        topic = ConfigResource(ResourceType.TOPIC, "t")
        cluster.write(cluster.controller.alter_configs({topic: [allow]}, validate_only=False))
        cluster.heartbeat(3, want_fence=True)
        cluster.heartbeat(3)
        assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
        assert cluster.partition("t").leader_recovery_state is LeaderRecoveryState.RECOVERING

    def test_unfenced_broker_does_not_lead_partitions_in_offline_directories(self) -> None:
        cluster = Cluster()
        request = cluster.registration(1)
        request.log_dirs = [uuid(70), uuid(71)]
        cluster.write(cluster.controller.register_broker(request, now_ms=cluster.now_ms))
        cluster.heartbeat(1)
        epoch = cluster.image.brokers.brokers[1].epoch
        topic_id = cluster.create_topic("t", [[1]])
        held = AssignReplicasToDirsRequestTopicData(topic_id, [AssignReplicasToDirsRequestPartitionData(0)])
        assignment = AssignReplicasToDirsRequest(1, epoch, [AssignReplicasToDirsRequestDirectoryData(uuid(70), [held])])
        cluster.write(cluster.controller.assign_directories(assignment))
        cluster.heartbeat(1, want_fence=True)
        assert not cluster.heartbeat(1, offline=[uuid(70)]).is_fenced
        assert cluster.image.brokers.brokers[1].directories == (uuid(71),)
        assert cluster.partition("t").leader == NO_LEADER

    def test_offline_directory_removes_its_replicas_from_the_isr(self) -> None:
        cluster = Cluster()
        request = cluster.registration(1)
        request.log_dirs = [uuid(70), uuid(71)]
        cluster.write(cluster.controller.register_broker(request, now_ms=cluster.now_ms))
        cluster.heartbeat(1)
        cluster.start_brokers(2)
        cluster.create_topic("t", [[1, 2]])
        cluster.heartbeat(1, offline=[uuid(70)])
        broker = cluster.image.brokers.get(1)
        assert broker is not None
        assert broker.directories == (uuid(71),)
        assert cluster.partition("t").isr == (1, 2), "the replica's directory is not known yet"
        before = cluster.controller.last_offset
        cluster.heartbeat(1, offline=[uuid(70)])
        assert cluster.controller.last_offset == before, "a repeated report changes nothing"


class TestControlledShutdown:
    def test_shutdown_completes_once_leaders_moved_and_other_brokers_applied_it(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2)
        cluster.create_topic("t", [[1, 2]])
        first = cluster.heartbeat(1, want_shut_down=True)
        assert (first.should_shut_down, first.is_fenced) == (False, False)
        assert cluster.partition("t").leader == 2
        registration = cluster.image.brokers.get(1)
        assert registration is not None
        assert registration.in_controlled_shutdown
        assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down, (
            "broker 2 has not applied the shutdown yet"
        )
        cluster.heartbeat(2)
        last = cluster.heartbeat(1, want_shut_down=True)
        assert (last.should_shut_down, last.is_fenced) == (True, True)
        assert not cluster.image.brokers.is_active(1)

    def test_shutdown_completes_despite_control_records_in_between(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2)
        cluster.create_topic("t", [[1, 2]])
        cluster.quorum_writes = 2
        cluster.heartbeat(1, want_shut_down=True)
        cluster.heartbeat(2, offset=cluster.controller.last_offset - 1)
        assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
        cluster.heartbeat(2)
        assert cluster.heartbeat(1, want_shut_down=True).should_shut_down

    def test_broker_without_leaderships_shuts_down_at_once(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        assert cluster.heartbeat(1, want_shut_down=True).should_shut_down

    def test_fenced_broker_shuts_down_at_once(self) -> None:
        cluster = Cluster()
        cluster.register(1)
        assert cluster.heartbeat(1, want_shut_down=True).should_shut_down

    def test_broker_in_shutdown_gets_no_new_leaderships(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2, 3)
        cluster.create_topic("t", [[1, 2]])
        cluster.heartbeat(1, want_shut_down=True)
        cluster.create_topic("u", [[1, 3]])
        assert (cluster.partition("u").leader, cluster.partition("u").isr) == (3, (3,))


class TestNewIncarnation:
    """The effect of a new incarnation on its partitions, with and without ELR."""

    def test_new_incarnation_is_out_of_every_isr(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2)
        cluster.create_topic("t", [[1, 2]])
        cluster.now_ms += cluster.settings.session_timeout_ms
        cluster.register(1, incarnation=2)
        assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((2,), 2)

    def test_replica_stays_eligible_after_clean_shutdown(self) -> None:
        cluster = Cluster(elr=True)
        cluster.start_brokers(1)
        cluster.create_topic("t", [[1]])
        epoch = cluster.image.brokers.brokers[1].epoch
        while not cluster.heartbeat(1, want_shut_down=True).should_shut_down:
            pass
        assert (cluster.partition("t").elr, cluster.partition("t").isr) == ((1,), ())
        cluster.register(1, incarnation=2, previous_epoch=epoch)
        cluster.heartbeat(1)
        partition = cluster.partition("t")
        assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())
        assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERED

    def test_last_known_leader_must_recover_after_a_kill(self) -> None:
        cluster = Cluster(elr=True)
        cluster.start_brokers(1)
        cluster.create_topic("t", [[1]])
        cluster.now_ms += cluster.settings.session_timeout_ms
        cluster.register(1, incarnation=2)
        assert (cluster.partition("t").elr, cluster.partition("t").last_known_elr) == ((), (1,))
        cluster.heartbeat(1)
        partition = cluster.partition("t")
        assert (partition.leader, partition.isr, partition.last_known_elr) == (1, (1,), ())
        assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING


class TestFailover:
    def test_new_controller_grants_every_broker_a_full_session(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        cluster.now_ms += cluster.settings.session_timeout_ms - 1
        cluster.fail_over()
        cluster.now_ms += cluster.settings.session_timeout_ms - 1
        cluster.run_periodic_tasks()
        assert cluster.image.brokers.is_active(1)
        cluster.now_ms += 1
        cluster.run_periodic_tasks()
        assert not cluster.image.brokers.is_active(1)

    def test_restarted_node_does_not_wait_for_its_previous_session(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        cluster.commit()
        controller = cluster.new_controller()
        controller.load(cluster.log)
        cluster.controller = controller
        cluster.activate(local_broker=LocalBroker(BrokerId(1), incarnation_of(1, incarnation=2)))
        assert cluster.register(1, incarnation=2) > 0

    def test_ended_process_of_a_restarted_node_is_fenced_although_its_successor_never_registers(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        cluster.commit()
        controller = cluster.new_controller()
        controller.load(cluster.log)
        cluster.controller = controller
        cluster.activate(local_broker=LocalBroker(BrokerId(1), incarnation_of(1, incarnation=2)))
        cluster.now_ms += cluster.settings.session_timeout_ms
        cluster.run_periodic_tasks()
        assert not cluster.image.brokers.is_active(1)

    def test_live_broker_keeps_its_session_when_its_own_controller_takes_over(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1)
        controller = cluster.new_controller()
        controller.load(cluster.log)
        cluster.controller = controller
        cluster.activate(local_broker=LocalBroker(BrokerId(1), incarnation_of(1)))
        assert (
            refusal(cluster, elsewhere(cluster.registration(1, incarnation=2)))
            is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        )


class TestUnregister:
    def test_unregistration_removes_the_broker_and_its_leaderships(self) -> None:
        cluster = Cluster()
        cluster.start_brokers(1, 2)
        cluster.create_topic("t", [[1, 2]])
        cluster.write(cluster.controller.unregister_broker(UnregisterBrokerRequest(1)))
        assert cluster.image.brokers.get(1) is None
        assert cluster.partition("t").leader == 2

    def test_unregistering_an_unknown_broker_is_refused(self) -> None:
        with pytest.raises(KafkaError) as caught:
            Cluster().controller.unregister_broker(UnregisterBrokerRequest(1))
        assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_record_versions_follow_their_purpose() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch)
    unfenced = cluster.controller.heartbeat(request, now_ms=cluster.now_ms)
    assert [(type(record), version) for record, version in unfenced.records] == [(BrokerRegistrationChangeRecord, 0)]
    registered = cluster.controller.register_broker(cluster.registration(2), now_ms=cluster.now_ms)
    assert [(type(record), version) for record, version in registered.records] == [(RegisterBrokerRecord, 3)]
