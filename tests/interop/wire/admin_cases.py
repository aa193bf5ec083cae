"""Cases of APIs that the controller answers, besides topics and configs, and of their effects at brokers.

They run after those of `cases`. They switch features off and on; their users and quotas stay.
"""

from collections.abc import Callable, Generator, Mapping, Sequence

from protocol.api_keys import ApiKey
from protocol.messages import Message
from protocol.messages import alter_client_quotas as acq
from protocol.messages import alter_partition_reassignments as apr
from protocol.messages import alter_user_scram_credentials as asc
from protocol.messages import create_acls as ca
from protocol.messages import create_delegation_token as cdt
from protocol.messages import delete_acls as da
from protocol.messages import describe_acls as dsa
from protocol.messages import describe_client_quotas as dcq
from protocol.messages import describe_delegation_token as ddt
from protocol.messages import describe_user_scram_credentials as dsc
from protocol.messages import elect_leaders as el
from protocol.messages import expire_delegation_token as edt
from protocol.messages import list_partition_reassignments as lpr
from protocol.messages import renew_delegation_token as rdt
from protocol.messages import unregister_broker as ub
from protocol.messages import update_features as uf
from tests.interop.wire.harness import WireHarness

Scenario = Generator[tuple[str, Message], Message | None, None]
Entity = Mapping[str, str | None]

UNKNOWN = "no-such-topic"
SALTED = bytes(range(32))


def elect_leaders(harness: WireHarness, version: int) -> Scenario:
    for kind in (0, 1, 2) if version else (0,):

        def request(*topics: str, kind: int = kind, partitions: Sequence[int] = (0, 77)) -> Message:
            return el.ElectLeadersRequest(kind, [el.TopicPartitions(topic, list(partitions)) for topic in topics])

        yield f"kind {kind}", request("many", UNKNOWN)
        yield f"kind {kind}, an invalid name", request("../x")
        yield f"kind {kind}, twice the same", request("many", partitions=(1, 1))
        yield f"kind {kind}, all", el.ElectLeadersRequest(kind, None)
        yield f"kind {kind}, none", el.ElectLeadersRequest(kind, [])


def alter_partition_reassignments(harness: WireHarness, version: int) -> Scenario:
    def request(
        replicas: Sequence[int] | None, topic: str = "many", *, may_change: bool = True, index: int = 0
    ) -> Message:
        rows = [apr.ReassignablePartition(index, None if replicas is None else list(replicas))]
        topics = [apr.ReassignableTopic(topic, rows)]
        return apr.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_change or version == 0, topics=topics
        )

    yield "the current value", request([1])
    yield "no replicas", request([])
    yield "a replica twice", request([1, 1])
    yield "an unknown broker", request([77])
    yield "a negative broker", request([-1])
    yield "nothing to cancel", request(None)
    yield "an unknown topic", request([1], UNKNOWN)
    yield "an unknown partition", request([1], index=77)
    yield "cancel at an unknown topic", request(None, UNKNOWN)
    yield "nothing", apr.AlterPartitionReassignmentsRequest()
    yield "a topic without partitions", apr.AlterPartitionReassignmentsRequest(topics=[apr.ReassignableTopic("many")])
    if version:
        yield "as many as before", request([1], may_change=False)
        yield "more than before", request([1, 77], may_change=False)


def list_partition_reassignments(harness: WireHarness, version: int) -> Scenario:
    asked = [lpr.ListPartitionReassignmentsTopics("many", [0, 77]), lpr.ListPartitionReassignmentsTopics(UNKNOWN, [0])]
    yield "all", lpr.ListPartitionReassignmentsRequest()
    yield "some", lpr.ListPartitionReassignmentsRequest(topics=asked)
    yield "none", lpr.ListPartitionReassignmentsRequest(topics=[])


def alter_client_quotas(harness: WireHarness, version: int) -> Scenario:
    def request(
        entity: Entity, limits: Mapping[str, float | None], *, times: int = 1, validate_only: bool = False
    ) -> Message:
        parts = [acq.AlterClientQuotasRequestEntityData(kind, name) for kind, name in entity.items()]
        operations = [acq.OpData(key, value or 0.0, value is None) for key, value in limits.items()]
        entries = [acq.AlterClientQuotasRequestEntryData(parts, operations) for _ in range(times)]
        return acq.AlterClientQuotasRequest(entries, validate_only)

    rate, user = "consumer_byte_rate", {"user": "wire-user"}
    yield "a user", request(user, {rate: 1024.0, "request_percentage": 12.5, "controller_mutation_rate": 10.0})
    yield "a user, again", request(user, {rate: 1024.0})
    yield "a user's client", request({"user": "wire-user", "client-id": "c"}, {"producer_byte_rate": 1.0})
    yield "the default user", request({"user": None}, {rate: 2.0**40})
    yield "an address", request({"ip": "10.1.2.3"}, {"connection_creation_rate": 5.0})
    yield "an IPv6 address", request({"ip": "fe80::1"}, {"connection_creation_rate": 5.0})
    yield "any address", request({"ip": None}, {"connection_creation_rate": 500.0})
    yield "validate only", request({"user": "nobody"}, {rate: 1.0}, validate_only=True)
    yield "remove", request(user, {"request_percentage": None})
    yield "remove a missing quota", request({"user": "nobody"}, {rate: None})
    yield "remove an unknown key", request(user, {"no-such-key": None})
    yield "remove a user quota of an address", request({"ip": "10.1.2.3"}, {rate: None})
    yield "nothing to do", request(user, {})
    yield "no entity", request({}, {rate: 1.0})
    yield "an unknown type", request({"group": "g"}, {rate: 1.0})
    yield "an empty name", request({"user": ""}, {rate: 1.0})
    yield "an address and a user", request({"ip": "10.1.2.3", "user": "u"}, {"connection_creation_rate": 1.0})
    yield "an invalid address", request({"ip": "not an address"}, {"connection_creation_rate": 1.0})
    yield "an unknown key", request(user, {"no-such-key": 1.0})
    yield "the key of an address", request(user, {"connection_creation_rate": 1.0})
    yield "the key of a user", request({"ip": "10.1.2.3"}, {rate: 1.0})
    for value in (-1.0, 0.4, 1.5, 2.0**64, float("inf")):
        yield f"{value} bytes", request(user, {rate: value})
    for value in (0.001, 1e300):
        yield f"{value} percent", request(user, {"request_percentage": value})
    yield "restore", request(user, {"request_percentage": None})
    yield "too many connections", request({"ip": "10.1.2.3"}, {"connection_creation_rate": 2.0**31})
    operations = [acq.OpData(rate, 1.0), acq.OpData(rate, 2.0)]
    parts = [acq.AlterClientQuotasRequestEntityData("user", "twice")]
    entries = [acq.AlterClientQuotasRequestEntryData(parts, operations)]
    yield "a key twice", acq.AlterClientQuotasRequest(entries)


def describe_client_quotas(harness: WireHarness, version: int) -> Scenario:
    def request(*components: tuple[str, int, str | None], strict: bool = False) -> Message:
        return dcq.DescribeClientQuotasRequest([dcq.ComponentData(*each) for each in components], strict)

    yield "all", request()
    yield "all, strictly", request(strict=True)
    yield "a user", request(("user", 0, "wire-user"))
    yield "a user, strictly", request(("user", 0, "wire-user"), strict=True)
    yield "the default user", request(("user", 1, None))
    yield "any user", request(("user", 2, None))
    yield "any user's client", request(("user", 2, None), ("client-id", 0, "c"), strict=True)
    yield "any address", request(("ip", 2, None))
    yield "an unknown user", request(("user", 0, "nobody"))
    yield "no type", request(("", 0, "u"))
    yield "an unknown type", request(("group", 0, "u"))
    yield "a type twice", request(("user", 0, "u"), ("user", 1, None))
    yield "an unknown match", request(("user", 3, None))
    yield "an exact match of nothing", request(("user", 0, None))
    yield "the default by name", request(("user", 1, "u"))
    yield "any by name", request(("user", 2, "u"))
    yield "an address and a user", request(("user", 0, "u"), ("ip", 0, "10.1.2.3"))


def alter_user_scram_credentials(harness: WireHarness, version: int) -> Scenario:
    def upsert(user: str = "wire-user", mechanism: int = 1, iterations: int = 4096, salted: bytes = SALTED) -> Message:
        row = asc.ScramCredentialUpsertion(user, mechanism, iterations, b"salt", salted)
        return asc.AlterUserScramCredentialsRequest(upsertions=[row])

    def delete(*mechanisms: int, user: str = "wire-user") -> Message:
        rows = [asc.ScramCredentialDeletion(user, mechanism) for mechanism in mechanisms]
        return asc.AlterUserScramCredentialsRequest(rows)

    yield "store", upsert()
    yield "store by another mechanism", upsert(mechanism=2, iterations=16_384)
    yield "store for another user", upsert("wire-other")
    yield "delete", delete(2)
    yield "delete a missing credential", delete(2)
    yield "delete without a user", delete(1, user="")
    yield "delete by an unknown mechanism", delete(3)
    yield "delete twice", delete(1, 1)
    yield "too few iterations", upsert(iterations=4095)
    yield "too many iterations", upsert(iterations=16_385)
    yield "an unknown mechanism", upsert(mechanism=0)
    yield "no user", upsert("")
    yield "nothing", asc.AlterUserScramCredentialsRequest()
    rows = [asc.ScramCredentialUpsertion("wire-twice", mechanism, 4096, b"salt", SALTED) for mechanism in (1, 2)]
    yield "a user twice", asc.AlterUserScramCredentialsRequest(upsertions=rows)


def describe_user_scram_credentials(harness: WireHarness, version: int) -> Scenario:
    def request(*users: str) -> Message:
        return dsc.DescribeUserScramCredentialsRequest([dsc.UserName(user) for user in users])

    yield "all", dsc.DescribeUserScramCredentialsRequest(None)
    yield "all users", request()
    yield "some", request("wire-user", "nobody", "")
    yield "a user twice", request("wire-user", "wire-user")


def create_acls(harness: WireHarness, version: int) -> Scenario:
    creation = ca.AclCreation(2, "many", 3, "User:u", "*", 3, 3)
    yield "one", ca.CreateAclsRequest([creation])
    yield "two", ca.CreateAclsRequest([creation, creation])
    yield "none", ca.CreateAclsRequest()


def describe_acls(harness: WireHarness, version: int) -> Scenario:
    yield "all", dsa.DescribeAclsRequest(1, None, 1, None, None, 1, 1)


def delete_acls(harness: WireHarness, version: int) -> Scenario:
    every = da.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    yield "all", da.DeleteAclsRequest([every])
    yield "all twice", da.DeleteAclsRequest([every, every])
    yield "none", da.DeleteAclsRequest()


def create_delegation_token(harness: WireHarness, version: int) -> Scenario:
    yield "one", cdt.CreateDelegationTokenRequest(renewers=[cdt.CreatableRenewers("User", "r")], max_lifetime_ms=-1)
    if version >= 3:
        yield "for another owner", cdt.CreateDelegationTokenRequest("User", "o", [], -1)


def renew_delegation_token(harness: WireHarness, version: int) -> Scenario:
    yield "one", rdt.RenewDelegationTokenRequest(b"hmac", 1000)


def expire_delegation_token(harness: WireHarness, version: int) -> Scenario:
    yield "one", edt.ExpireDelegationTokenRequest(b"hmac", -1)


def describe_delegation_token(harness: WireHarness, version: int) -> Scenario:
    yield "all", ddt.DescribeDelegationTokenRequest(None)
    yield "someone's", ddt.DescribeDelegationTokenRequest([ddt.DescribeDelegationTokenOwner("User", "u")])


def unregister_broker(harness: WireHarness, version: int) -> Scenario:
    yield "an unknown one", ub.UnregisterBrokerRequest(77)
    yield "a negative one", ub.UnregisterBrokerRequest(-1)


def update_features(harness: WireHarness, version: int) -> Scenario:
    up, safe, unsafe = 1, 2, 3

    def request(*changes: tuple[str, int, int], validate_only: bool = False) -> Message:
        rows = [
            uf.FeatureUpdateKey(name, level, allow_downgrade=kind != up)
            if version == 0
            else uf.FeatureUpdateKey(name, level, upgrade_type=kind)
            for name, level, kind in changes
        ]
        return uf.UpdateFeaturesRequest(feature_updates=rows, validate_only=validate_only and version > 0)

    group, metadata = "group.version", "metadata.version"
    yield "the current value", request((group, 1, up))
    yield "nothing", request()
    yield "an unknown feature", request(("no.such.feature", 1, up))
    yield "an unknown feature to level 0", request(("no.such.feature", 0, safe))
    yield "too high a level", request((group, 99, up))
    yield "too high a metadata.version", request((metadata, 999, up))
    yield "too low a metadata.version", request((metadata, 1, safe))
    yield "a negative level", request((group, -1, safe))
    yield "a downgrade without its flag", request((group, 0, up))
    yield "a lossy downgrade", request((metadata, 22, safe))
    yield "one good, one bad", request((group, 1, up), (metadata, 999, up))
    if version:
        yield "an unknown kind of change", request((group, 1, 7))
        yield "a lossy downgrade by force", request((metadata, 22, unsafe))
        yield "up as a downgrade", request((metadata, 999, safe))
        yield "validate only", request((group, 0, safe), validate_only=True)
        yield "switch off", request((group, 0, safe))
        yield "switch on", request((group, 1, up))


ADMIN_SCENARIOS: Mapping[ApiKey, Callable[[WireHarness, int], Scenario]] = {
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.DELETE_ACLS: delete_acls,
    ApiKey.CREATE_DELEGATION_TOKEN: create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
    ApiKey.UNREGISTER_BROKER: unregister_broker,
    ApiKey.UPDATE_FEATURES: update_features,
}
