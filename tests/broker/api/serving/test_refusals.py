"""Refusals of whole requests, as the authorization stage makes them."""

from collections import defaultdict

import pytest

from broker.api.serving.errors import error_response
from protocol.api_keys import API_BY_KEY, ApiKey, response_class
from protocol.errors import ErrorCode
from protocol.headers import encode_response
from protocol.primitives import Uuid
from tests.interop.authorization.requests import requests_of


@pytest.mark.parametrize("api", API_BY_KEY, ids=lambda key: ApiKey(key).name)
def test_refusal_of_every_api_can_be_encoded(api: int) -> None:
    limits = API_BY_KEY[ApiKey(api)]
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for version in range(limits.min_version, limits.max_version + 1):
        for _, request in requests_of(ApiKey(api), version, defaultdict(lambda: Uuid(bytes(16)))):
            answer = error_response(response_class(ApiKey(api)), request, code, code.message)
            assert encode_response(api, version, 1, answer)
