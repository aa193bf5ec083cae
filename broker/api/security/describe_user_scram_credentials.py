"""DescribeUserScramCredentials (key 50), version 0: the SCRAM mechanisms of users (KIP-554)."""

from collections import Counter
from collections.abc import Mapping

from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import MetadataSource
from protocol.errors import ErrorCode
from protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


class DescribeUserScramCredentialsHandler:
    """Answers DescribeUserScramCredentials from the published image; a request without users means all users."""

    def __init__(self, metadata: MetadataSource) -> None:
        self._metadata = metadata

    def __call__(
        self, request: DescribeUserScramCredentialsRequest, context: RequestContext
    ) -> DescribeUserScramCredentialsResponse:
        known = self._by_user()
        asked = Counter(user.name for user in request.users or ()) or Counter(known.keys())
        return DescribeUserScramCredentialsResponse(
            results=[_result(user, times, known) for user, times in asked.items()]
        )

    def _by_user(self) -> dict[str, list[CredentialInfo]]:
        by_user: dict[str, list[CredentialInfo]] = {}
        for (mechanism, user), credential in sorted(self._metadata.image.scram.credentials.items()):
            by_user.setdefault(user, []).append(CredentialInfo(mechanism, credential.iterations))
        return by_user


def _result(
    user: str, occurrences: int, known: Mapping[str, list[CredentialInfo]]
) -> DescribeUserScramCredentialsResult:
    if occurrences > 1:
        return DescribeUserScramCredentialsResult(
            user, ErrorCode.DUPLICATE_RESOURCE, f"user '{user}' is named more than once in the request"
        )
    if user not in known:
        return DescribeUserScramCredentialsResult(
            user, ErrorCode.RESOURCE_NOT_FOUND, f"user '{user}' has no credentials"
        )
    return DescribeUserScramCredentialsResult(user, credential_infos=known[user])
