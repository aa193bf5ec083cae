"""One run of the matrix against one broker: principals, ACLs, all requests, and the state before and after refusals.

ACLs are stored once, for all principals. `exact` has, for one alternative of a requirement, these permissions on these
resources and no others.
"""

import base64
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from broker.api.pipeline.permission import AclResourceType, Permission, Requirement, Unrestricted
from broker.api.serving.route import Route
from protocol.api_keys import FIRST_PRIVATE_KEY, ApiKey
from protocol.messages import Message
from protocol.messages import create_acls as ca
from protocol.messages import describe_acls as da
from protocol.messages import describe_client_quotas as dq
from protocol.messages import describe_configs as dc
from protocol.messages import describe_user_scram_credentials as ds
from protocol.messages import find_coordinator as fc
from protocol.messages import init_producer_id as ip
from protocol.messages import list_groups as lg
from protocol.messages import list_offsets as lo
from protocol.messages import metadata as md
from protocol.messages import offset_commit as oc
from protocol.messages import offset_fetch as of
from protocol.primitives import Uuid
from tests.broker.api.pipeline.test_permission import broker_table, controller_table
from tests.interop.authorization.requests import DOOMED, GROUP, NEW, OWNER, RECORDS, TOPIC, TRANSACTION, requests_of
from tests.interop.wire.cases import produce_request
from tests.interop.wire.harness import CLOSED, TIMEOUT_S, Plain, WireHarness, plain
from tests.support.certificates import CertificateAuthority

REFUSED = ("none", "other", "denied")
CASES = (*REFUSED, "exact", "super")
OTHER, ALL, DENY, ALLOW, LITERAL = "other", 2, 2, 3, 3
Key = tuple[str, ApiKey, str, int, str]
"""Listener, API, variant, version, case."""
Outcome = dict[Key, Plain]

NAMES: Mapping[AclResourceType, tuple[str, ...]] = {
    AclResourceType.TOPIC: (TOPIC, DOOMED, NEW),
    AclResourceType.GROUP: (GROUP,),
    AclResourceType.CLUSTER: ("kafka-cluster",),
    AclResourceType.TRANSACTIONAL_ID: (TRANSACTION,),
    AclResourceType.DELEGATION_TOKEN: ("token",),
    AclResourceType.USER: (OWNER,),
}
TABLES: Mapping[str, Mapping[ApiKey, Route]] = {"broker": broker_table(), "controller": controller_table()}

UNSTABLE = frozenset({"token_id", "hmac", "high_watermark", "log_end_offset", "last_fetch_timestamp", "leader_id"})
UNSTABLE |= {"last_caught_up_timestamp", "replica_directory_id", "leader_epoch", "client_instance_id", "size"}
UNSTABLE |= {"subscription_id", "brokers", "controller_id"}
"""Fields that differ between two brokers, or two runs of one."""


def settings(directory: Path, authority: CertificateAuthority) -> dict[str, str]:
    """Return the settings of either broker: TLS with certificates on both listeners, ACLs, and one super user."""
    directory.mkdir(parents=True, exist_ok=True)
    own = authority.issue("admin", "localhost", "127.0.0.1").write_pem(directory / "own.pem")
    trust = directory / "trust.pem"
    trust.write_text(authority.pem)
    found = {f"transaction.state.log.{key}": "1" for key in ("num.partitions", "replication.factor", "min.isr")}
    found |= {
        f"share.coordinator.state.topic.{key}": "1" for key in ("num.partitions", "replication.factor", "min.isr")
    }
    return found | {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "delegation.token.secret.key": "sesame-token-3",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "num.partitions": "1",
    }


def rights_of(requirement: Requirement | Unrestricted) -> list[tuple[Permission, ...]]:
    """Return each least set of permissions that fulfils the requirement; alternatives are taken side by side."""
    if isinstance(requirement, Unrestricted):
        return []
    count = max(map(len, requirement.clauses))
    return [tuple(clause[min(index, len(clause) - 1)] for clause in requirement.clauses) for index in range(count)]


def principal_of(rights: Iterable[Permission]) -> str:
    return "-".join(f"{operation.name}-{kind.name}" for operation, kind in rights).lower().replace("_", "-")


def cases_of(row: Route) -> Iterator[tuple[str, str]]:
    """Yield (case, principal) of a route."""
    yield from ((case, case) for case in REFUSED)
    for number, rights in enumerate(rights_of(row.permission)):
        yield f"exact {number + 1}" if number else "exact", principal_of(rights)
    yield "super", "admin"


def acls() -> list[ca.AclCreation]:
    """Return all ACLs of the run."""
    rights = {each for row in _rows() for each in rights_of(row.permission)}

    def acl(kind: int, name: str, who: str, operation: int = ALL, permission: int = ALLOW) -> ca.AclCreation:
        return ca.AclCreation(kind, name, LITERAL, f"User:{who}", "*", operation, permission)

    found = []
    for kind, names in NAMES.items():
        if kind is not AclResourceType.CLUSTER:
            found.append(acl(kind, "User:other" if kind is AclResourceType.USER else OTHER, "other"))
            found.append(acl(kind, "User:x" if kind is AclResourceType.USER else "kafka-cluster", "other"))
        found.append(acl(kind, "kafka-cluster" if kind is AclResourceType.CLUSTER else "*", "denied"))
        found += [acl(kind, name, "denied", permission=DENY) for name in names]
    found.append(acl(AclResourceType.TOPIC, "no-such-topic", "denied", permission=DENY))
    for each in rights:
        for operation, kind in each:
            found += [acl(kind, name, principal_of(each), operation) for name in NAMES[kind]]
    return found


def _rows() -> Iterator[Route]:
    return chain.from_iterable(table.values() for table in TABLES.values())


class MatrixRun:
    """Connections of all principals to both listeners of one broker."""

    def __init__(self, directory: Path, authority: CertificateAuthority, addresses: Mapping[str, str]) -> None:
        self._directory = directory
        self._authority = authority
        self._addresses = addresses
        self._open: dict[tuple[str, str], WireHarness] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._topic_ids: dict[str, Uuid] = {}

    def run(self, *, all_versions: bool) -> tuple[Outcome, Plain, Plain]:
        """Return all responses, and the state before and after the refused requests."""
        outcome: Outcome = {}
        try:
            self._prepare()
            before = self._state()
            self._send(outcome, refused=True, all_versions=all_versions)
            after = self._state()
            self._send(outcome, refused=False, all_versions=all_versions)
        finally:
            for harness in self._open.values():
                harness.close()
        return outcome, before, after

    def _send(self, outcome: Outcome, *, refused: bool, all_versions: bool) -> None:
        for listener, table in TABLES.items():
            for api, row in sorted(table.items()):
                if api >= FIRST_PRIVATE_KEY:
                    continue
                ends = sorted({row.min_version, row.max_version})
                for version in row.versions if all_versions else ends:
                    for case, principal in cases_of(row):
                        if (case in REFUSED) is refused:
                            self._ask(outcome, (listener, api, version, case), principal)

    def _ask(self, outcome: Outcome, at: tuple[str, ApiKey, int, str], principal: str) -> None:
        listener, api, version, case = at
        harness = self._connection(principal, listener)
        for variant, request in requests_of(api, version, self._topic_ids):
            answer = harness.call(request, version)
            key = (listener, api, variant, version, case)
            outcome[key] = CLOSED if answer is None else _stable(plain(harness, answer), api)

    def _connection(self, principal: str, listener: str = "broker") -> WireHarness:
        if (principal, listener) not in self._open:
            harness = WireHarness(self._addresses[listener], self._context(principal))
            harness.topic_ids = self._topic_ids
            self._open[principal, listener] = harness
        return self._open[principal, listener]

    def _context(self, principal: str) -> ssl.SSLContext:
        if principal not in self._contexts:
            context = ssl.create_default_context(cadata=self._authority.pem)
            path = self._authority.issue(principal).write_pem(self._directory / f"{principal}.pem")
            context.load_cert_chain(path)
            self._contexts[principal] = context
        return self._contexts[principal]

    def _prepare(self) -> None:
        admin = self._connection("admin")
        admin.warm_up()
        admin.create_topics({TOPIC: (1, {}), OTHER: (1, {}), DOOMED: (1, {})})
        row = oc.OffsetCommitRequestTopic(TOPIC, partitions=[oc.OffsetCommitRequestPartition(0, 1)])
        for request, version in (
            (produce_request(admin, 9, [(TOPIC, 0, RECORDS)]), 9),
            (oc.OffsetCommitRequest(GROUP, topics=[row]), 8),
        ):
            assert admin.call(request, version) is not None
        self._begin_transaction(admin)
        self._find_share_coordinator(admin)
        created = admin.call(ca.CreateAclsRequest(acls()), 3)
        assert isinstance(created, ca.CreateAclsResponse)
        assert all(result.error_code == 0 for result in created.results), created
        for listener in TABLES:
            self._wait_for_acls(listener)

    def _begin_transaction(self, admin: WireHarness) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            for _, find in requests_of(ApiKey.FIND_COORDINATOR, 4, self._topic_ids):
                admin.call(find, 4)
            answer = admin.call(ip.InitProducerIdRequest(TRANSACTION, 60_000), 4)
            assert isinstance(answer, ip.InitProducerIdResponse)
            if answer.error_code == 0:
                return
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)

    def _find_share_coordinator(self, admin: WireHarness) -> None:
        """Wait until the coordinator of share groups' states is available; the first request creates its topic."""
        topic_id = base64.urlsafe_b64encode(self._topic_ids[TOPIC]).decode().rstrip("=")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = admin.call(fc.FindCoordinatorRequest("", 2, [f"{GROUP}:{topic_id}:0"]), 6)
            assert isinstance(answer, fc.FindCoordinatorResponse)
            if answer.coordinators[0].error_code == 0:
                return
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)

    def _wait_for_acls(self, listener: str) -> None:
        wanted = len({repr(each) for each in acls()})
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._connection("admin", listener).call(da.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
            assert isinstance(answer, da.DescribeAclsResponse)
            if sum(len(resource.acls) for resource in answer.resources) == wanted:
                return
            assert time.monotonic() < deadline, (answer, wanted)
            time.sleep(0.02)

    def _state(self) -> Plain:
        """Return what refused requests could have changed. Delegation tokens are left out: everybody may own some."""
        admin = self._connection("admin")
        configs = [dc.DescribeConfigsResource(2, TOPIC), dc.DescribeConfigsResource(4, "")]
        asked: list[tuple[Message, int]] = [
            (md.MetadataRequest(None), 12),
            (lo.ListOffsetsRequest(topics=[lo.ListOffsetsTopic(TOPIC, [lo.ListOffsetsPartition(0, -1, -1)])]), 7),
            (of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(GROUP, topics=None)]), 8),
            (dc.DescribeConfigsRequest(configs), 4),
            (da.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3),
            (dq.DescribeClientQuotasRequest(), 1),
            (ds.DescribeUserScramCredentialsRequest(None), 0),
            (lg.ListGroupsRequest(), 5),
        ]
        return [_stable(plain(admin, admin.call(*each)), ApiKey(each[0].API_KEY)) for each in asked]


def _stable(answer: Plain, api: ApiKey) -> Plain:
    """Leave out unstable fields; of ApiVersions everything but the error, since tables and features differ."""
    if api is ApiKey.API_VERSIONS and isinstance(answer, dict):
        return {"error_code": answer["error_code"]}
    if isinstance(answer, dict):
        return {name: _stable(value, api) for name, value in answer.items() if name not in UNSTABLE}
    return [_stable(each, api) for each in answer if not _is_late(each)] if isinstance(answer, list) else answer


def _is_late(item: Plain) -> bool:
    """Whether the item is an internal topic, which the first request for its coordinator creates."""
    return isinstance(item, dict) and str(item.get("name") or item.get("resource_name") or "").startswith("__share_")


def errors_of(answer: Plain) -> set[int]:
    """Return all error codes of a response."""
    if isinstance(answer, dict):
        own = {value for name, value in answer.items() if name.endswith("error_code") and isinstance(value, int)}
        return own.union(*map(errors_of, answer.values())) - {0}
    return set().union(*map(errors_of, answer)) if isinstance(answer, list) else set()


def row_of(key: Key) -> str:
    """Return the name of a row of the matrix: listener, API and variant."""
    listener, api, variant, _, _ = key
    return f"{listener} {api.name}{f', {variant}' if variant else ''}"
