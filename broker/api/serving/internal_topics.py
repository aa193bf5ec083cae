"""Creation of the internal topics of Kafka Streams applications, on behalf of a member of the group (KIP-1071)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from broker.api.serving.context import RequestContext
from broker.api.serving.forwarding import RequestForwarder
from broker.api.topics.create_topics import CreateTopicsHandler
from broker.logs import EventLog
from broker.net.request import CloseConnection, Request
from broker.runtime.loop.runtime import Runtime
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import RequestHeader
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

MAX_CREATIONS_UNDER_WAY: Final = 10_000
MAX_REMEMBERED_ERRORS: Final = 1_000

_log: Final = EventLog("broker.topics")


class InternalTopicCreation:
    """Creates topics in the background, through the active controller, under the principal of the client.

    At most one creation per name is in flight. A failed one is remembered for a while, and not repeated before.
    """

    def __init__(
        self,
        forwarder: RequestForwarder,
        here: CreateTopicsHandler,
        runtime: Runtime,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._forwarder = forwarder
        self._here = here
        self._runtime = runtime
        self._timeout_ms = timeout_ms
        self._under_way: set[str] = set()
        self._errors: dict[str, tuple[str, float]] = {}

    def request(self, topics: Iterable[CreatableTopic], context: RequestContext, error_ms: int) -> None:
        """Begin to create the topics. `error_ms` is how long the reason of a failure is remembered."""
        now_ms = self._runtime.clock.monotonic_ms()
        due = [topic for topic in topics if topic.name not in self._under_way and not self._error(topic.name, now_ms)]
        if due and len(self._under_way) + len(due) <= MAX_CREATIONS_UNDER_WAY:
            self._under_way.update(topic.name for topic in due)
            self._runtime.spawn(self._create(due, context, error_ms))

    def errors(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the reasons of failed creations by topic."""
        now_ms = self._runtime.clock.monotonic_ms()
        found = {name: self._error(name, now_ms) for name in names}
        return {name: reason for name, reason in found.items() if reason is not None}

    def _error(self, name: str, now_ms: float) -> str | None:
        reason, until_ms = self._errors.get(name, ("", now_ms))
        return reason if until_ms > now_ms else None

    async def _create(self, topics: list[CreatableTopic], context: RequestContext, error_ms: int) -> None:
        request = CreateTopicsRequest(topics, timeout_ms=self._timeout_ms())
        try:
            response = await self._send(request, context)
            for result in response.topics:
                if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    reason = result.error_message or ErrorCode(result.error_code).name
                    self._remember(result.name, reason, error_ms)
        except (KafkaError, CloseConnection) as error:
            for topic in topics:
                self._remember(topic.name, str(error), error_ms)
        finally:
            self._under_way.difference_update(topic.name for topic in topics)

    async def _send(self, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
        version = CreateTopicsRequest.MAX_VERSION
        former = context.request.header
        header = RequestHeader(ApiKey.CREATE_TOPICS, version, former.correlation_id, former.client_id)
        # The quota of creations counts this one, but does not hold up the member's heartbeats.
        connection = replace(context.connection)
        own = Request(header, memoryview(b""), connection, context.received_ms)
        own_context = RequestContext(version, context.client_id, connection, own, context.authorizer)
        return await self._forwarder.forward(
            request, header, connection, CreateTopicsResponse, lambda: self._here(request, own_context)
        )

    def _remember(self, name: str, reason: str, error_ms: int) -> None:
        _log.warning("An internal topic of a streams group could not be created", topic=name, reason=reason)
        now_ms = self._runtime.clock.monotonic_ms()
        if len(self._errors) >= MAX_REMEMBERED_ERRORS:
            self._errors = {each: entry for each, entry in self._errors.items() if entry[1] > now_ms}
        if len(self._errors) < MAX_REMEMBERED_ERRORS:
            self._errors[name] = (reason, now_ms + error_ms)
