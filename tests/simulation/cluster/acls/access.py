"""The authorization of a simulated broker: the product's authorizer, and a scan over the same entries beside it.

Invariants, by the names in violations:

- DecisionsFollowAcls: a decision is that of Kafka's rules over the entries of the image that the broker has applied.
- DeniedIsRefused: a client that lacks the right when its request arrives gets TOPIC_AUTHORIZATION_FAILED, neither
  records nor the offset of an append.
- AllowedIsServed: a client that has the right when its batch arrives is not refused.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

from broker.api.pipeline.permission import AclOperation, AclResourceType, Permission
from broker.api.serving.context import RequestContext
from broker.authorizer.standard import StandardAuthorizer
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.broker.authorizer import rules
from tests.simulation.simulator import EventLog

NODE: Final = "User:node"
_READ: Final = Permission(AclOperation.READ, AclResourceType.TOPIC)
_WRITE: Final = Permission(AclOperation.WRITE, AclResourceType.TOPIC)
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED

Rights = dict[str, bool]
"""Whether the client had the right when its request arrived, by topic."""


class Answer(Protocol):
    """A future of a response."""

    def add_done_callback(self, callback: Callable[[Any], None]) -> None: ...


class BrokerAccess:
    """An authorizer for the handlers of one broker process, and a publisher of its metadata."""

    def __init__(self, checker: EventLog, node_id: int, image: Callable[[], MetadataImage], *, is_open: bool) -> None:
        self._checker = checker
        self._node_id = node_id
        self._image = image
        self._is_open = is_open
        self._authorizer = StandardAuthorizer({NODE}, allow_everyone=is_open)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply an image."""
        self._authorizer.on_metadata(delta, image)
        if self._authorizer.acl_count != len(image.acls.entries):
            self._fail("DecisionsFollowAcls", f"has {self._authorizer.acl_count} of {len(image.acls.entries)} entries")

    @property
    def generation(self) -> int:
        return self._authorizer.generation

    def admit(self, context: RequestContext) -> None:
        """Give a request its principal: that of a node, or of a client by its id."""
        is_client = context.client_id.startswith("client-")
        context.connection.principal = principal_of(context.client_id) if is_client else NODE
        context.authorizer = self

    def is_allowed(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        """Return the product's decision, once it is that of the rules."""
        decided = self._authorizer.is_allowed(principal, host, permission, resource_name)
        expected = self._expected(principal, host, permission, resource_name)
        if decided != expected:
            self._fail(
                "DecisionsFollowAcls",
                f"decides {decided} about {principal} at {host}: {permission.operation.name} on {resource_name}",
            )
        return decided

    def is_allowed_on_some(self, principal: str, host: str, permission: Permission) -> bool:
        return self._authorizer.is_allowed_on_some(principal, host, permission)

    def _expected(self, principal: str, host: str, permission: Permission, name: str) -> bool:
        entries = self._image().acls.entries.values()
        return principal == NODE or rules.is_allowed(
            entries, principal, host, permission, name, allow_everyone=self._is_open
        )

    # What requests get

    def rights(self, message: object, context: RequestContext) -> Rights:
        """Return the client's rights to the topics of a produce or fetch request; empty for others."""
        if context.principal == NODE:
            return {}
        topics = self._image().topics
        if isinstance(message, ProduceRequest):
            found: Iterable[tuple[str, Permission]] = [(topic.name, _WRITE) for topic in message.topic_data]
        elif isinstance(message, FetchRequest):
            images = [topics.by_id(topic.topic_id) for topic in message.topics]
            found = [(image.name, _READ) for image in images if image is not None]
        else:
            return {}
        return {
            name: self._expected(context.principal, context.peer_host, permission, name) for name, permission in found
        }

    def witness(self, rights: Rights, answer: Any) -> None:
        """Check the response against the rights at the arrival of the request, now or when there is one."""
        if not rights:
            return
        if isinstance(answer, ProduceResponse | FetchResponse):
            self._check(rights, answer)
        else:
            answer.add_done_callback(partial(self._on_answer, rights))

    def _on_answer(self, rights: Rights, done: Any) -> None:
        if not done.cancelled() and done.exception() is None:
            self._check(rights, done.result())

    def _check(self, rights: Rights, response: ProduceResponse | FetchResponse) -> None:
        topics = self._image().topics
        if isinstance(response, ProduceResponse):
            for produced in response.responses:
                for entry in produced.partition_responses:
                    is_allowed, is_refused = rights[produced.name], entry.error_code == _DENIED
                    if not is_allowed and (not is_refused or entry.base_offset >= 0):
                        self._fail("DeniedIsRefused", f"appends to {produced.name}: {entry}")
                    if is_allowed and is_refused:
                        self._fail("AllowedIsServed", f"refuses a batch for {produced.name}")
                    self._checker.counts.add("refused batches", int(is_refused))
            return
        for fetched in response.responses:
            image = topics.by_id(fetched.topic_id)
            for data in fetched.partitions if image is not None else ():
                assert image is not None
                is_refused = data.error_code == _DENIED
                if not rights.get(image.name, True) and (not is_refused or data.records):
                    self._fail("DeniedIsRefused", f"answers a fetch of {image.name} with error {data.error_code}")
                self._checker.counts.add("refused fetches", int(is_refused))

    def _fail(self, invariant: str, text: str) -> None:
        self._checker.fail(invariant, f"broker {self._node_id} {text}")


def principal_of(client_id: str) -> str:
    return f"User:{client_id}"
