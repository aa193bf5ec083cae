"""The standard authorizer: decides over the ACLs of the metadata image, as Kafka's StandardAuthorizer (KIP-801).

A super user may do everything. Else DENY entries win over ALLOW entries. A resource without any entry is denied, unless
`allow.everyone.if.no.acl.found` is set.
"""

from collections.abc import Mapping, Set
from typing import Final

from immutables import Map

from broker.api.pipeline.permission import Permission
from broker.authorizer.acl_index import EMPTY_INDEX, AclIndex
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.security_image import AccessControlEntry
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"
_NO_PARTICULAR_NAME: Final = "hardcode"
_REMEMBERED_MAX: Final = 10_000  # decisions under one image
_REMEMBERED_NAME_MAX: Final = 249  # characters; the longest name of a topic


class AuthorizerNotReady(KafkaError):
    """No metadata are known yet. Kafka's AuthorizerNotReadyException has no error code of its own."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, "the access control lists are not known yet")


class StandardAuthorizer:
    """An authorizer and metadata publisher. `super_users` are principals as `User:name`."""

    def __init__(self, super_users: Set[str], *, allow_everyone: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._is_loaded = False
        self._entries: Map[Uuid, AccessControlEntry] = Map()
        self._index: AclIndex = EMPTY_INDEX
        self._decisions: dict[tuple[str, str, Permission, str], bool] = {}
        self.generation = 0
        self.allowed = self.denied = 0
        """Decisions since the start, those about super users included."""

    @property
    def acl_count(self) -> int:
        """The number of ACLs in the latest image."""
        return len(self._entries)

    @property
    def index(self) -> AclIndex:
        """The index of the latest image."""
        return self._index

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the changed ACLs; everyone is judged by `image` from now on."""
        self._is_loaded = True
        before, after = self._entries, image.acls.entries
        if after is before:
            return
        if delta.acls is not None and delta.image.acls.entries is before:
            changed = [(before.get(each), after.get(each)) for each in delta.acls.changes]
            removed = [old for old, new in changed if old is not None and old != new]
            added = [new for old, new in changed if new is not None and old != new]
            self._index = self._index.changed(removed, added)
        else:
            self._index = EMPTY_INDEX.changed((), after.values())
        self._entries = after
        self.generation += 1
        self._decisions.clear()

    def is_allowed(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        """See `Authorizer`. Raises AuthorizerNotReady before the first image, except for super users."""
        is_allowed = principal in self._super_users or self._is_allowed(principal, host, permission, resource_name)
        if is_allowed:
            self.allowed += 1
        else:
            self.denied += 1
        return is_allowed

    def _is_allowed(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        question = (principal, host, permission, resource_name)
        known = self._decisions.get(question)
        if known is not None:
            return known
        if not self._is_loaded:
            raise AuthorizerNotReady
        decision = self._decide(principal, host, permission, resource_name)
        if len(resource_name) <= _REMEMBERED_NAME_MAX:
            if len(self._decisions) >= _REMEMBERED_MAX:
                self._decisions.clear()
            self._decisions[question] = decision
        return decision

    def _decide(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        operation, resource_type = permission
        has_entries, is_denied, is_allowed = self._index.verdict(
            resource_type, resource_name, operation, principal, host
        )
        return is_allowed and not is_denied if has_entries else self._allow_everyone

    def is_allowed_on_some(self, principal: str, host: str, permission: Permission) -> bool:
        """See `Authorizer`. Raises AuthorizerNotReady before the first image, except for super users.

        As in Kafka, a principal that may access a name without entries has the permission on some resource.
        """
        if self.is_allowed(principal, host, permission, _NO_PARTICULAR_NAME):
            return True
        operation, resource_type = permission
        return self._index.allows_some(resource_type, operation, principal, host)


def standard_authorizer(settings: Mapping[str, str]) -> StandardAuthorizer:
    """Return an authorizer with the settings of a node by key. Raises ValueError with a sentence."""
    return StandardAuthorizer(
        parse_super_users(settings.get(SUPER_USERS, "")),
        allow_everyone=settings.get(ALLOW_EVERYONE, "").strip().lower() == "true",
    )


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals of a list separated by semicolons. Raises ValueError with a sentence."""
    principals = frozenset(filter(None, (each.strip() for each in text.split(";"))))
    for principal in sorted(principals):
        if ":" not in principal:
            raise ValueError(
                f'{SUPER_USERS} has "{principal}" but a principal must have the form TYPE:NAME, such as User:admin.'
            )
    return principals
