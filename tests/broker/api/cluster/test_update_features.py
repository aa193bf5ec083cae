"""UpdateFeatures: versions of the response, and the upgrade of kraft.version."""

from typing import NamedTuple

import pytest

from broker.api.cluster.update_features import UpdateFeaturesHandler
from broker.metadata.image.metadata_version import MetadataVersion
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.api.metadata_harness import LiveCluster, context


class Quorum:
    """A quorum whose kraft.version can be raised, and which records the requests."""

    def __init__(self, kraft_version: int = 0, failure: KafkaError | None = None) -> None:
        self.kraft_version = kraft_version
        self.voter_ids = (1,)
        self.upgrades: list[int] = []
        self._failure = failure

    async def upgrade_kraft_version(self, version: int) -> None:
        self.upgrades.append(version)
        if self._failure is not None:
            raise self._failure
        self.kraft_version = version


class UpdateFeaturesHarness(NamedTuple):
    cluster: LiveCluster
    quorum: Quorum
    handler: UpdateFeaturesHandler


def make_harness(failure: KafkaError | None = None) -> UpdateFeaturesHarness:
    quorum = Quorum(failure=failure)
    cluster = LiveCluster(level=MetadataVersion.IV_4_0_0, quorum=quorum)
    return UpdateFeaturesHarness(cluster, quorum, UpdateFeaturesHandler(cluster, quorum))


async def test_upgrade_has_a_result_per_feature_in_version_1() -> None:
    cluster, _, handler = make_harness()
    response = await handler(
        UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("metadata.version", 29)]), context(1)
    )
    assert (response.error_code, [(each.feature, each.error_code) for each in response.results]) == (
        0,
        [("metadata.version", 0)],
    )
    assert cluster.image.features.metadata_level == 29


async def test_error_is_reported_once_for_all() -> None:
    cluster, _, handler = make_harness()
    updates = [FeatureUpdateKey("metadata.version", 29), FeatureUpdateKey("group.version", 7)]
    response = await handler(UpdateFeaturesRequest(feature_updates=updates), context(2))
    assert ErrorCode(response.error_code) is ErrorCode.INVALID_UPDATE_VERSION
    assert "group.version" in (response.error_message or "")
    assert cluster.image.features.metadata_level == 22


async def test_version_0_allows_downgrades_by_a_flag() -> None:
    cluster, _, handler = make_harness()
    for allow, code in ((False, ErrorCode.INVALID_UPDATE_VERSION), (True, ErrorCode.NONE)):
        updates = [FeatureUpdateKey("group.version", 0, allow_downgrade=allow)]
        response = await handler(UpdateFeaturesRequest(feature_updates=updates), context(0))
        assert ErrorCode(response.error_code) is code
    assert "group.version" not in cluster.image.features.finalized()


class TestKraftVersion:
    both = (FeatureUpdateKey("kraft.version", 1), FeatureUpdateKey("metadata.version", 29))

    async def test_quorum_raises_kraft_version(self) -> None:
        cluster, quorum, handler = make_harness()
        response = await handler(UpdateFeaturesRequest(feature_updates=[*self.both]), context(2))
        assert (response.error_code, quorum.upgrades, cluster.image.features.metadata_level) == (0, [1], 29)

    async def test_kraft_version_stays_if_another_change_is_invalid(self) -> None:
        _, quorum, handler = make_harness()
        updates = [*self.both, FeatureUpdateKey("group.version", 9)]
        response = await handler(UpdateFeaturesRequest(feature_updates=updates), context(2))
        assert (ErrorCode(response.error_code), quorum.upgrades) == (ErrorCode.INVALID_UPDATE_VERSION, [])

    async def test_kraft_version_stays_on_validate_only(self) -> None:
        _, quorum, handler = make_harness()
        response = await handler(UpdateFeaturesRequest(feature_updates=[*self.both], validate_only=True), context(2))
        assert (response.error_code, quorum.upgrades) == (0, [])

    async def test_refused_kraft_version_changes_nothing(self) -> None:
        cluster, _, handler = make_harness(KafkaError(ErrorCode.NOT_CONTROLLER))
        with pytest.raises(KafkaError):
            await handler(UpdateFeaturesRequest(feature_updates=[*self.both]), context(2))
        assert cluster.image.features.metadata_level == 22
