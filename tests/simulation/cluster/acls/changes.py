"""Random changes of access control lists, and their end: clients may do everything again."""

from typing import Final

from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.metadata.image.security_image import AccessControlEntry
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.simulation.cluster.acls.access import principal_of
from tests.simulation.cluster.fault_source import FaultSource, ScheduleState

_ASK_AGAIN_MS: Final = 200.0
_CHANGE_EVERY_MS: Final = 150.0
_MATCH, _LITERAL, _PREFIXED = 2, 3, 4
_DENY, _ALLOW = 2, 3
_ANY, _ALL = 1, 2
_EVERYBODY, _EVERYWHERE = "User:*", "*"
_OPERATIONS: Final = (_ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DELETE)
_BASE: Final = AccessControlEntry(AclResourceType.TOPIC, "*", _LITERAL, _EVERYBODY, _EVERYWHERE, _ALL, _ALLOW)
"""The entry without which a closed cluster serves no client."""


class AclChanges(FaultSource):
    """The changes of the schedule. Without `acls` in the scenario they do nothing."""

    def __init__(self, state: ScheduleState) -> None:
        super().__init__(state)
        scenario = state.simulation.metadata_scenario
        self._is_active = scenario.acls
        self._base = frozenset() if scenario.acls_open else frozenset({_BASE})
        self._is_restoring = False

    @property
    def is_restored(self) -> bool:
        """Whether the committed entries are those of a cluster whose clients may do everything."""
        return not self._is_active or self._entries() == self._base

    def begin(self) -> None:
        """Let clients in, and then change entries again and again."""
        if self._is_active:
            self._restore()
            self._change_again()

    def end(self) -> None:
        """Remove all entries that the changes have left."""
        if self._is_active and not self._is_restoring:
            self._restore()

    def _change_again(self) -> None:
        """Create or delete entries, and let clients in now and then."""
        if self._is_over:
            return
        self._after(self._random.expovariate(1.0 / _CHANGE_EVERY_MS), self._change_again)
        kind = self._random.random()
        if kind < 0.5:
            self._create(self._random_entry())
        elif kind < 0.85:
            self._delete()
        else:
            self._create(_BASE)

    def _entries(self) -> frozenset[AccessControlEntry]:
        return frozenset(self._simulation.checker.committed.image.acls.entries.values())

    def _random_entry(self) -> AccessControlEntry:
        random, clients = self._random, self._simulation.clients
        topic = random.choice(self._partitions()).topic
        name, pattern = random.choice(
            ((topic, _LITERAL), (topic, _PREFIXED), (topic[:-1], _PREFIXED), (topic[:-1], _LITERAL), ("*", _LITERAL))
        )
        ids = [client.process.node_id for client in clients]
        principals = [*(principal_of(f"client-{each}") for each in ids), _EVERYBODY, "User:nobody"]
        hosts = [_EVERYWHERE, _EVERYWHERE, *(f"host-{each}" for each in ids), "host-0"]
        return AccessControlEntry(
            AclResourceType.TOPIC,
            name,
            pattern,
            random.choice(principals),
            random.choice(hosts),
            random.choice(_OPERATIONS),
            random.choice((_DENY, _ALLOW)),
        )

    def _create(self, entry: AccessControlEntry) -> None:
        request = CreateAclsRequest([AclCreation(*entry)])
        self._note(f"ACL created: {_shown(entry)}")
        self._count("ACL changes")
        self._simulation.command(lambda controller, _now: controller.create_acls(request), _nothing)

    def _delete(self) -> None:
        entries = sorted(self._entries())
        if not entries:
            return
        entry = self._random.choice(entries)
        if self._random.random() < 0.7:
            self._remove(DeleteAclsFilter(*entry), f"ACL deleted: {_shown(entry)}")
        else:
            topic = self._random.choice(self._partitions()).topic
            whole = DeleteAclsFilter(AclResourceType.TOPIC, topic, _MATCH, None, None, _ANY, _ANY)
            self._remove(whole, f"ACLs of {topic} deleted")

    def _remove(self, chosen: DeleteAclsFilter, note: str) -> None:
        request = DeleteAclsRequest([chosen])
        self._note(note)
        self._count("ACL changes")
        self._simulation.command(lambda controller, _now: controller.delete_acls(request), _nothing)

    def _restore(self) -> None:
        """Ask the active controller for the base entries until they are committed."""
        self._is_restoring = self._is_over or not self.is_restored  # a slow controller may still commit a change
        if not self._is_restoring:
            return
        for entry in self._base - self._entries():
            self._create(entry)
        for entry in sorted(self._entries() - self._base):
            self._remove(DeleteAclsFilter(*entry), f"ACL withdrawn: {_shown(entry)}")
        self._after(_ASK_AGAIN_MS, self._restore)


def _shown(entry: AccessControlEntry) -> str:
    pattern = "prefix " if entry.pattern_type == _PREFIXED else ""
    permission = "DENY" if entry.permission_type == _DENY else "ALLOW"
    operation = "ALL" if entry.operation == _ALL else AclOperation(entry.operation).name
    return f"{permission} {entry.principal} at {entry.host} {operation} on {pattern}{entry.resource_name}"


def _nothing(_: object) -> None:
    """Ignore the result."""
