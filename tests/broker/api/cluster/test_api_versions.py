"""ApiVersions: the listener's table as clients see it, features, software names (KIP-511, KIP-584)."""

import pytest

from broker.api.cluster.api_versions import ApiVersionsHandler
from broker.api.serving.route import Forwarding
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.api.metadata_harness import FixedMetadata, context, unrestricted_route
from tests.broker.metadata.images import image_with

IMAGE = image_with()


def _no_response(_request: object, _context: object) -> None:
    return None


def handler() -> ApiVersionsHandler:
    rows = [unrestricted_route(key, _no_response) for key in (ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.FETCH)]
    return ApiVersionsHandler(lambda: rows, FixedMetadata(IMAGE), kraft_version=lambda: 1)


def ask(version: int, name: str = "client", software_version: str = "1.0") -> ApiVersionsResponse:
    return handler()(ApiVersionsRequest(name, software_version), context(version))


@pytest.mark.parametrize("version", range(5))
def test_routes_are_listed_in_key_order(version: int) -> None:
    response = ask(version)
    assert [each.api_key for each in response.api_keys] == [ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS]
    assert (response.api_keys[1].min_version, response.api_keys[1].max_version) == (0, 13)


def test_forwarded_apis_are_limited_to_the_controllers_versions() -> None:
    keys = (ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.ALTER_CONFIGS, ApiKey.ELECT_LEADERS)
    rows = [
        unrestricted_route(key, _no_response, Forwarding.LOCAL if key is ApiKey.METADATA else Forwarding.TO_CONTROLLER)
        for key in keys
    ]
    theirs: dict[int, tuple[int, int]] = {
        ApiKey.CREATE_TOPICS: (0, 5),
        ApiKey.DELETE_TOPICS: (3, 99),
        ApiKey.ALTER_CONFIGS: (7, 9),
    }
    answers = ApiVersionsHandler(
        lambda: rows, FixedMetadata(IMAGE), kraft_version=lambda: 1, controller_versions=lambda: theirs
    )
    response = answers(ApiVersionsRequest("a", "1"), context(4))
    assert {each.api_key: (each.min_version, each.max_version) for each in response.api_keys} == {
        ApiKey.METADATA: (0, 13),
        ApiKey.CREATE_TOPICS: (2, 5),
        ApiKey.DELETE_TOPICS: (3, 6),
    }


def test_finalized_features_have_the_offset_as_epoch() -> None:
    response = ask(4)
    assert {each.name: (each.min_version_level, each.max_version_level) for each in response.finalized_features} == {
        "eligible.leader.replicas.version": (1, 1),
        "group.version": (1, 1),
        "kraft.version": (1, 1),
        "metadata.version": (29, 29),
        "share.version": (1, 1),
        "streams.version": (1, 1),
        "transaction.version": (2, 2),
    }
    assert response.finalized_features_epoch == IMAGE.offset


def test_feature_with_minimum_0_is_left_out_before_version_4() -> None:
    assert [each.name for each in ask(3).supported_features] == ["metadata.version"]
    assert {each.name for each in ask(4).supported_features} == {
        "eligible.leader.replicas.version",
        "group.version",
        "kraft.version",
        "metadata.version",
        "share.version",
        "streams.version",
        "transaction.version",
    }


def test_software_name_is_remembered() -> None:
    request_context = context(3)
    handler()(ApiVersionsRequest("apache-kafka-java", "4.2.0"), request_context)
    assert request_context.connection.client_software_name == "apache-kafka-java"
    assert request_context.connection.client_software_version == "4.2.0"


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a\n", "ä"])
def test_malformed_software_name_is_refused_from_version_3_on(name: str) -> None:
    for response in (ask(3, name), ask(4, "client", name)):
        assert (ErrorCode(response.error_code), response.api_keys) == (ErrorCode.INVALID_REQUEST, [])
    assert ask(2, name).error_code == ErrorCode.NONE


def test_unknown_version_is_answered_with_the_range() -> None:
    response = handler().unsupported()
    assert ErrorCode(response.error_code) is ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [(18, 0, 4)]
