import subprocess
import sys

import pytest

import schemas
from protocol import schema
from protocol.api_keys import API_BY_KEY, FIRST_PRIVATE_KEY, ApiKey, request_class, response_class
from protocol.schema import snake_case

REQUESTS = [spec for path in schemas.message_paths() if (spec := schema.load(path)).kind == "request"]


def test_keys_and_names_match_the_schemas() -> None:
    stated = {spec.api_key: snake_case(spec.name.removesuffix("Request")).upper() for spec in REQUESTS}
    assert {key.value: key.name for key in ApiKey} == stated
    ours = {key for key in stated if key >= FIRST_PRIVATE_KEY}
    assert set(stated) - ours == set(range(93)) - {4, 5, 6, 7}
    assert ours == {ApiKey.CREATE_METADATA_SNAPSHOT, ApiKey.RESTORE_TOPICS, ApiKey.DESCRIBE_NODE}


def test_classes_are_found_by_key() -> None:
    for api in API_BY_KEY.values():
        for cls, suffix in ((request_class(api.key), "Request"), (response_class(api.key), "Response")):
            assert cls.__name__ == api.name + suffix
            assert api.key == cls.API_KEY
            assert (api.min_version, api.max_version) == (cls.MIN_VERSION, cls.MAX_VERSION)
            assert api.flexible_from == cls.FLEXIBLE_FROM


def test_versions_are_those_that_kafka_4_serves() -> None:
    assert API_BY_KEY[ApiKey.PRODUCE][3:5] == (3, 13)
    assert API_BY_KEY[ApiKey.FETCH][3:5] == (4, 18)
    assert API_BY_KEY[ApiKey.LIST_OFFSETS][3:5] == (1, 11)
    assert [api.name for api in API_BY_KEY.values() if api.unstable] == ["InitProducerId"]


def test_unknown_api_key_raises_key_error() -> None:
    with pytest.raises(KeyError):
        request_class(4)


def test_importing_headers_imports_no_message() -> None:
    script = "import sys, protocol.headers; print(*[m for m in sys.modules if m.startswith('protocol.messages.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["protocol.messages.index"]
