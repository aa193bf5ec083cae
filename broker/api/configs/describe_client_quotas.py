"""DescribeClientQuotas (key 48), versions 0-1: the quotas of the entities that match a filter (KIP-546)."""

from collections.abc import Iterable
from enum import IntEnum

from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import MetadataSource
from broker.metadata.image.quota_image import CLIENT_ID, IP, USER, QuotaEntity
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


class MatchType(IntEnum):
    """Ways to match one part of an entity: an exact name, the default of its type, or any name."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


class DescribeClientQuotasHandler:
    """Answers DescribeClientQuotas from the published image."""

    def __init__(self, metadata: MetadataSource) -> None:
        self._metadata = metadata

    def __call__(self, request: DescribeClientQuotasRequest, context: RequestContext) -> DescribeClientQuotasResponse:
        try:
            wanted = _EntityFilter(request.components, strict=request.strict)
        except KafkaError as error:
            return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
        return DescribeClientQuotasResponse(
            entries=[
                EntryData(
                    [EntityData(kind, name) for kind, name in entity],
                    [ValueData(key, value) for key, value in sorted(limits.items())],
                )
                for entity, limits in self._metadata.image.client_quotas.entities.items()
                if wanted.matches(entity)
            ],
        )


class _EntityFilter:
    """Required parts by name (None for the default) and required types; no others if `strict`."""

    def __init__(self, components: Iterable[ComponentData], *, strict: bool) -> None:
        self._named: dict[str, str | None] = {}
        self._occurring: set[str] = set()
        self._strict = strict
        for component in components:
            self._add(component)
        types = self._named.keys() | self._occurring
        if IP in types and len(types) > 1:
            raise _invalid("an ip cannot be combined with a user or a client id")

    def matches(self, entity: QuotaEntity) -> bool:
        if self._strict and len(entity) != len(self._named) + len(self._occurring):
            return False
        parts = dict(entity)
        return self._named.items() <= parts.items() and self._occurring <= parts.keys()

    def _add(self, component: ComponentData) -> None:
        kind, match_type, name = component.entity_type, component.match_type, component.match
        if not kind:
            raise _invalid("a component of the filter has no entity type")
        if kind in self._named or kind in self._occurring:
            raise _invalid(f"entity type {kind} is named more than once in the filter")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"entity type {kind} is unknown")
        if match_type not in tuple(MatchType):
            raise _invalid(f"match type {match_type} is unknown")
        if (name is None) is (match_type == MatchType.EXACT):
            raise _invalid(f"the name of entity type {kind} does not fit the match type")
        if match_type == MatchType.SPECIFIED:
            self._occurring.add(kind)
        else:
            self._named[kind] = name


def _invalid(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)
