"""ApiVersions (key 18), versions 0-4: APIs and versions of this listener, computed from its table; features.

Every client may send it. An unknown version is answered in version 0 with the served range (`unsupported`). The
connection keeps the client's software name and version (KIP-511, KIP-584).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import MetadataSource
from broker.api.serving.route import Route
from broker.metadata.image.features import KRAFT_VERSION, SUPPORTED_FEATURES
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

ServedVersions = Mapping[int, tuple[int, int]]
"""The lowest and the highest version of each API, by key."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_FROM: Final = 3
# Decoders of older clients fail on a feature whose lowest level is 0.
_MINIMUM_ZERO_FROM: Final = 4


class ApiVersionsHandler:
    """Answers ApiVersions. `routes` returns the listener's rows, `kraft_version` the quorum's current level.

    `controller_versions` returns the versions of the active controller, None where these cannot be fewer.
    """

    def __init__(
        self,
        routes: Callable[[], Sequence[Route]],
        metadata: MetadataSource,
        *,
        kraft_version: Callable[[], int],
        controller_versions: Callable[[], ServedVersions | None] = lambda: None,
    ) -> None:
        self._routes = routes
        self._metadata = metadata
        self._kraft_version = kraft_version
        self._controller_versions = controller_versions

    def __call__(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        if context.api_version >= _SOFTWARE_FROM:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            context.connection.client_software_name = name
            context.connection.client_software_version = version
        features = self._metadata.image.features
        finalized = {**features.finalized(), KRAFT_VERSION: self._kraft_version()}
        return ApiVersionsResponse(
            api_keys=self._served(),
            supported_features=_supported(context.api_version),
            finalized_features_epoch=self._metadata.image.offset,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in sorted(finalized.items())
                if level > 0
            ],
        )

    def _served(self) -> list[ApiVersion]:
        theirs = self._controller_versions()
        served = (_advertised(row) if theirs is None else _common(row, theirs) for row in self._in_order())
        return [each for each in served if each is not None]

    def unsupported(self) -> ApiVersionsResponse:
        """Return the version-0 response to an unknown version of ApiVersions: the served range."""
        own = [row for row in self._in_order() if row.key is ApiKey.API_VERSIONS]
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[_advertised(row) for row in own],
        )

    def _in_order(self) -> list[Route]:
        return sorted((row for row in self._routes() if row.is_advertised), key=lambda row: row.key)


def _advertised(row: Route) -> ApiVersion:
    lowest = row.min_version if row.advertised_min_version < 0 else row.advertised_min_version
    return ApiVersion(row.key, lowest, row.max_version)


def _common(row: Route, theirs: ServedVersions) -> ApiVersion | None:
    """Return the versions of a forwarded row that the active controller serves too, because others would fail."""
    if not row.is_forwarded:
        return _advertised(row)
    low, high = theirs.get(row.key, (0, -1))
    low, high = max(low, row.min_version), min(high, row.max_version)
    return ApiVersion(row.key, low, high) if low <= high else None


def _supported(api_version: int) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=name, min_version=levels.minimum, max_version=levels.maximum)
        for name, levels in sorted(SUPPORTED_FEATURES.items())
        if levels.minimum > 0 or api_version >= _MINIMUM_ZERO_FROM
    ]
