"""UpdateFeatures: atomic, within every member's range, and safe downgrades (KIP-584, KIP-778)."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from broker.metadata.controller.feature_updates import FeatureChange, UpgradeType
from broker.metadata.controller.state import ControllerSettings
from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.metadata_version import MetadataVersion
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.broker_registration import Feature
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.messages.controller_registration import Feature as ControllerFeature
from protocol.messages.metadata_records import ClearElrRecord, ConfigRecord, FeatureLevelRecord, PartitionChangeRecord
from tests.broker.metadata.images import CLUSTER_ID, Cluster, incarnation_of

TRANSACTION = "transaction.version"
MV, ELR, GROUP, KRAFT = "metadata.version", "eligible.leader.replicas.version", "group.version", "kraft.version"
UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


class ThreeVoters(NamedTuple):
    kraft_version: int = 0
    voter_ids: tuple[int, ...] = (1, 2, 3)


def update(cluster: Cluster, *changes: FeatureChange, validate_only: bool = False) -> None:
    cluster.write(cluster.controller.update_features(changes, validate_only=validate_only))


def refusal(cluster: Cluster, *changes: FeatureChange) -> str:
    with pytest.raises(KafkaError) as caught:
        update(cluster, *changes)
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    return caught.value.message or ""


def written(cluster: Cluster, changes: Sequence[FeatureChange]) -> list[object]:
    return [record.message for record in cluster.controller.update_features(changes, validate_only=False).records]


def test_upgrade_is_finalized_and_survives_failover() -> None:
    cluster = Cluster(level=MetadataVersion.IV_4_0_0)
    update(cluster, FeatureChange(MV, 29), FeatureChange(GROUP, 1))
    cluster.fail_over()
    assert cluster.image.features.finalized() == {GROUP: 1, MV: 29, TRANSACTION: 2}


def test_metadata_version_is_written_before_dependent_features() -> None:
    cluster = Cluster(level=MetadataVersion.IV_4_0_0)
    records = written(cluster, [FeatureChange(ELR, 1), FeatureChange(MV, 25)])
    assert records[:2] == [FeatureLevelRecord(MV, 25), FeatureLevelRecord(ELR, 1)]


def test_level_0_disables_a_feature() -> None:
    cluster = Cluster()
    update(cluster, FeatureChange(GROUP, 0, SAFE))
    assert GROUP not in cluster.image.features.finalized()


def test_present_level_is_not_written() -> None:
    assert written(Cluster(), [FeatureChange(MV, 29), FeatureChange(GROUP, 1, SAFE)]) == []


def test_validate_only_checks_and_changes_nothing() -> None:
    cluster = Cluster(level=MetadataVersion.IV_4_0_0)
    update(cluster, FeatureChange(MV, 29), validate_only=True)
    assert cluster.image.features.metadata_level == 22


@pytest.mark.parametrize(
    "change",
    [
        FeatureChange(MV, 22, 0),
        FeatureChange(MV, 22, 4),
        FeatureChange(GROUP, -1, SAFE),
        FeatureChange(GROUP, 2),
        FeatureChange("unknown.feature", 1),
        FeatureChange(MV, 30),
        FeatureChange(MV, 6, SAFE),
        FeatureChange(MV, 24),
        FeatureChange(GROUP, 0),
        FeatureChange(ELR, 1, SAFE),
        FeatureChange(MV, 22, SAFE),
        FeatureChange(MV, 22, UNSAFE),
        FeatureChange(KRAFT, 0, SAFE),
        FeatureChange(KRAFT, 2),
    ],
)
def test_one_invalid_change_refuses_all(change: FeatureChange) -> None:
    cluster = Cluster()
    before = cluster.controller.last_offset
    assert f"feature {change.feature} cannot be set to level {change.level}" in refusal(
        cluster, FeatureChange(GROUP, 1), change
    )
    assert cluster.controller.last_offset == before


def test_metadata_version_downgrades_without_record_changes() -> None:
    cluster = Cluster()
    update(cluster, FeatureChange(MV, 24, SAFE))
    assert cluster.image.features.metadata_level == 24


@pytest.mark.parametrize(("level", "works"), [(22, False), (23, True)])
def test_elr_needs_its_record_format(level: int, works: bool) -> None:
    cluster = Cluster(level=MetadataVersion(level))
    if works:
        update(cluster, FeatureChange(ELR, 1))
        assert cluster.image.features.elr_enabled
    else:
        assert "metadata.version must be at level 23" in refusal(cluster, FeatureChange(ELR, 1))


def test_broker_without_support_blocks_an_update() -> None:
    cluster = Cluster(level=MetadataVersion.IV_4_0_0)
    request = cluster.registration(5)
    request.features = [Feature(MV, 7, 25), Feature(GROUP, 0, 1), Feature(KRAFT, 0, 1), Feature(TRANSACTION, 0, 2)]
    cluster.write(cluster.controller.register_broker(request, now_ms=cluster.now_ms))
    assert "broker 5 supports levels 7 to 25" in refusal(cluster, FeatureChange(MV, 29))
    assert "broker 5 supports levels 0 to 0" in refusal(cluster, FeatureChange(ELR, 1), FeatureChange(MV, 25))
    update(cluster, FeatureChange(MV, 25))


class TestControllers:
    def cluster(self) -> Cluster:
        return Cluster(level=MetadataVersion.IV_4_0_0, quorum=ThreeVoters())

    def register(self, cluster: Cluster, controller: int, highest: int = 29) -> None:
        features = [ControllerFeature(MV, 7, highest)]
        request = ControllerRegistrationRequest(controller, incarnation_of(controller), False, [], features)
        cluster.write(cluster.controller.register_controller(request))

    def test_every_voter_must_be_registered(self) -> None:
        cluster = self.cluster()
        self.register(cluster, 2)
        assert "controller 3 is not registered" in refusal(cluster, FeatureChange(MV, 29))
        self.register(cluster, 3)
        update(cluster, FeatureChange(MV, 29))

    def test_every_voter_must_support_the_level(self) -> None:
        cluster = self.cluster()
        self.register(cluster, 2, highest=28)
        self.register(cluster, 3)
        assert "controller 2 supports levels 7 to 28" in refusal(cluster, FeatureChange(MV, 29))

    def test_older_metadata_version_does_not_check_controllers(self) -> None:
        cluster = Cluster(level=MetadataVersion.IV_3_6_2, quorum=ThreeVoters())
        update(cluster, FeatureChange(MV, 17))
        assert cluster.image.features.metadata_level == 17


class TestKraftVersion:
    def test_kraft_version_is_checked_and_left_to_the_quorum(self) -> None:
        cluster = Cluster(quorum=ThreeVoters(voter_ids=(1,)))
        assert written(cluster, [FeatureChange(KRAFT, 1)]) == []

    def test_kraft_version_needs_a_metadata_version(self) -> None:
        cluster = Cluster(level=MetadataVersion.IV_3_8_0, quorum=ThreeVoters(voter_ids=(1,)))
        assert "metadata.version must be at level 21" in refusal(cluster, FeatureChange(KRAFT, 1))


class TestEligibleLeaders:
    def test_enabling_elr_pins_one_minimum_for_all_nodes(self) -> None:
        cluster = Cluster()
        node = ConfigResource(ResourceType.BROKER, "1")
        cluster.append([config_record(node, "min.insync.replicas", "2"), config_record(node, "other", "x")])
        records = written(cluster, [FeatureChange(ELR, 1)])
        assert records == [
            FeatureLevelRecord(ELR, 1),
            ConfigRecord(ResourceType.BROKER, "", "min.insync.replicas", "1"),
            ConfigRecord(ResourceType.BROKER, "1", "min.insync.replicas", None),
        ]

    def test_disabling_elr_clears_the_lists(self) -> None:
        settings = ControllerSettings(CLUSTER_ID, node_id=1, auto_leader_rebalance=False)
        cluster = Cluster(settings, elr=True)
        cluster.start_brokers(1, 2)
        topic = cluster.create_topic("t", [[1, 2]])
        change = PartitionChangeRecord(0, topic, isr=[1], eligible_leader_replicas=[2])
        cluster.append_messages(change, version=2)
        update(cluster, FeatureChange(ELR, 0, SAFE))
        assert cluster.partition("t").elr == ()
        assert not cluster.image.features.elr_enabled

    def test_disabling_elr_moves_only_evidence_into_the_isr(self) -> None:
        cluster = Cluster(elr=True)
        cluster.start_brokers(1, 2)
        cluster.create_topic("t", [[1, 2]])
        cluster.heartbeat(2, want_fence=True)
        cluster.heartbeat(1, want_fence=True)
        assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((), (1,))
        update(cluster, FeatureChange(ELR, 0, SAFE))
        assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((1,), -1)
        cluster.heartbeat(1)
        assert cluster.partition("t").leader == 1

    def test_disabling_a_disabled_feature_writes_nothing(self) -> None:
        assert ClearElrRecord("") not in written(Cluster(), [FeatureChange(ELR, 0)])
