"""Requests of every API, filled from the schemas: one item in each list, and names of resources by field name.

`VALUES` names what an API needs besides; `VARIANTS` adds requests whose permissions depend on their fields.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from protocol.api_keys import ApiKey, request_class
from protocol.messages import Message
from protocol.primitives import ZERO_UUID, Uuid
from protocol.records.builder import Record, build_batch
from protocol.schema import FieldSpec, StructSpec, load

Values = Mapping[str, Any]

TOPIC, DOOMED, NEW, GROUP, TRANSACTION, OWNER = "t", "doomed", "new", "g", "x", "User:owner"
UNKNOWN_BROKER = 77
WRONG_CLUSTER = {"cluster_id": "AAAAAAAAAAAAAAAAAAAAAA"}
RECORDS = build_batch([Record(1_800_000_000_000, b"k", b"v")])

COMMON: Values = {
    **dict.fromkeys(("name", "topic", "topic_name", "subscribed_topic_names"), TOPIC),
    **dict.fromkeys(("group_id", "groups_names", "group_ids", "groups", "coordinator_keys", "key"), GROUP),
    **dict.fromkeys(("transactional_id", "transactional_ids", "v3_and_below_transactional_id"), TRANSACTION),
    **dict.fromkeys(("timeout_ms", "transaction_timeout_ms"), 10_000),
    **dict.fromkeys(("session_timeout_ms", "rebalance_timeout_ms"), 30_000),
    **dict.fromkeys(("broker_id", "controller_id"), UNKNOWN_BROKER),
    **dict.fromkeys(
        (
            "include_authorized_operations",
            "include_cluster_authorized_operations",
            "include_topic_authorized_operations",
        ),
        True,
    ),
    "member_id": "nobody",
    "records": RECORDS,
    "acks": -1,
    "partition_max_bytes": 1000,
    "hmac": b"hmac",
    "resource_type": 2,
    "resource_name": TOPIC,
    "configs": [],
    "forgotten_topics_data": [],
    "assignments": [],
    "principal_type": "User",
    "principal_name": "owner",
    "max_lifetime_ms": -1,
    "max_wait_ms": 0,
    "reason": None,
    "committed_metadata": "",
    "protocol_type": "consumer",
    "protocols": [],
    "instance_id": None,
    "cursor": None,
}
"""Values by field name; the others keep their defaults."""

_ACL: Values = {"resource_type": 2, "resource_name": "granted", "resource_pattern_type": 3, "host": "*"}
_FILTER: Values = {"resource_type_filter": 2, "resource_name_filter": "granted", "pattern_type_filter": 3}
_CONFIG: Values = {"AlterableConfig.name": "retention.ms", "value": "999999", "configs": ...}
_QUOTA: Values = {"entity_type": "user", "entity_name": "carol", "match_type": 0, "match": "carol"}

_OF_QUORUM: Values = {**WRONG_CLUSTER, "topic_name": "__cluster_metadata", "leader_endpoints": []}

VALUES: Mapping[ApiKey, Values] = {
    ApiKey.PRODUCE: {"transactional_id": None},
    ApiKey.FETCH: {"session_epoch": -1, "max_bytes": 1000},
    ApiKey.METADATA: {"topic_id": ZERO_UUID, "allow_auto_topic_creation": False},
    ApiKey.LIST_OFFSETS: {"timestamp": -1, "replica_id": -1},
    ApiKey.LIST_GROUPS: {"states_filter": [], "types_filter": []},
    ApiKey.LIST_TRANSACTIONS: {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": None},
    ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": []},
    ApiKey.API_VERSIONS: {"client_software_name": "matrix", "client_software_version": "1"},
    ApiKey.CREATE_TOPICS: {"name": NEW, "num_partitions": 1, "replication_factor": 1},
    ApiKey.DELETE_TOPICS: {"name": DOOMED, "topic_names": DOOMED, "topic_id": ZERO_UUID},
    ApiKey.CREATE_PARTITIONS: {"count": 2, "assignments": None},
    ApiKey.CREATE_ACLS: {**_ACL, "principal": "User:someone", "operation": 3, "permission_type": 3},
    ApiKey.DESCRIBE_ACLS: {**_FILTER, "operation": 1, "permission_type": 1},
    ApiKey.DELETE_ACLS: {**_FILTER, "operation": 1, "permission_type": 1},
    ApiKey.DESCRIBE_CONFIGS: {"configuration_keys": "retention.ms"},
    ApiKey.ALTER_CONFIGS: _CONFIG,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CONFIG,
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"path": "/no/such/directory"},
    ApiKey.CREATE_DELEGATION_TOKEN: {"owner_principal_type": "User", "owner_principal_name": "owner", "renewers": []},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {"replicas": 1},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _QUOTA,
    ApiKey.ALTER_CLIENT_QUOTAS: {**_QUOTA, "OpData.key": "consumer_byte_rate", "value": 1024.0},
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"name": "carol"},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [],
        "name": "carol",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": bytes(range(32)),
    },
    ApiKey.UPDATE_FEATURES: {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1},
    ApiKey.DESCRIBE_QUORUM: {"topic_name": "__cluster_metadata"},
    ApiKey.DESCRIBE_CLUSTER: {"endpoint_type": 1},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {"subscribed_topic_regex": None, "topic_partitions": [], "member_epoch": 3},
    ApiKey.SHARE_GROUP_HEARTBEAT: {"member_epoch": 3},
    ApiKey.STREAMS_GROUP_HEARTBEAT: {
        "member_epoch": 3,
        "topology": None,
        "user_endpoint": None,
        "active_tasks": None,
        "standby_tasks": None,
        "warmup_tasks": None,
        "client_tags": None,
        "task_offsets": None,
        "task_end_offsets": None,
    },
    ApiKey.SHARE_FETCH: {"acknowledgement_batches": [], "max_bytes": 1000, "max_records": 1, "batch_size": 1},
    ApiKey.SHARE_ACKNOWLEDGE: {"acknowledgement_batches": []},
    ApiKey.WRITE_SHARE_GROUP_STATE: {"state_batches": []},
    ApiKey.BROKER_REGISTRATION: {**WRONG_CLUSTER, "listeners": [], "features": [], "log_dirs": []},
    ApiKey.CONTROLLER_REGISTRATION: {"listeners": [], "features": []},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"response_partition_limit": 10},
    **dict.fromkeys((ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH), _OF_QUORUM),
    **dict.fromkeys((ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER), WRONG_CLUSTER),
    ApiKey.FETCH_SNAPSHOT: {**WRONG_CLUSTER, "name": "__cluster_metadata"},
}

_OF_BROKER: Values = {"resource_type": 4, "resource_name": "1", "configuration_keys": "log.cleaner.threads"}
_ALTER_BROKER: Values = {**_CONFIG, **_OF_BROKER, "AlterableConfig.name": "log.cleaner.threads", "value": "1"}
_ALTER_GROUP: Values = {
    **_CONFIG,
    "resource_type": 32,
    "resource_name": GROUP,
    "value": "45000",
    "AlterableConfig.name": "consumer.session.timeout.ms",
}
VARIANTS: Mapping[ApiKey, Mapping[str, Values]] = {
    ApiKey.DESCRIBE_CLUSTER: {"controllers": {"endpoint_type": 2}},
    ApiKey.METADATA: {
        "all topics": {"topics": []},
        "an unknown topic": {"topic_id": ZERO_UUID, "name": "no-such-topic", "allow_auto_topic_creation": False},
    },
    ApiKey.PRODUCE: {"a transaction": {"transactional_id": TRANSACTION}},
    ApiKey.INIT_PRODUCER_ID: {"idempotent": {"transactional_id": None}},
    ApiKey.FIND_COORDINATOR: {"a transaction": {"key": TRANSACTION, "coordinator_keys": TRANSACTION, "key_type": 1}},
    ApiKey.OFFSET_FETCH: {"all topics": {"topics": None}},
    ApiKey.DESCRIBE_CONFIGS: {
        "a broker": _OF_BROKER,
        "a group": {"resource_type": 32, "resource_name": GROUP, "configuration_keys": "consumer.session.timeout.ms"},
    },
    ApiKey.ALTER_CONFIGS: {"a broker": _ALTER_BROKER, "a group": _ALTER_GROUP},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"a broker": _ALTER_BROKER, "a group": _ALTER_GROUP},
}


def requests_of(api: ApiKey, version: int, topic_ids: Mapping[str, Uuid]) -> Iterator[tuple[str, Message]]:
    """Yield (name of the variant, request)."""
    yield "", _filled(api, version, topic_ids, VALUES.get(api, {}))
    for label, values in VARIANTS.get(api, {}).items():
        if label == "all topics" and api is ApiKey.METADATA and version > 0:
            values = {"topics": None}
        if label == "all topics" and api is ApiKey.OFFSET_FETCH and version < 2:
            continue
        if label == "a transaction" and api is ApiKey.FIND_COORDINATOR and version == 0:
            continue
        if label in ("controllers", "an unknown topic") and version == 0:
            continue
        yield label, _filled(api, version, topic_ids, values)


def _filled(api: ApiKey, version: int, topic_ids: Mapping[str, Uuid], values: Values) -> Message:
    kind: Any = request_class(api)
    given = {**COMMON, "topic_id": topic_ids[TOPIC], **values}
    message: Message = _Filler(kind, version, given).struct(load(kind.SCHEMA).struct)
    return message


class _Filler:
    """Fills the structs of one message in one version."""

    def __init__(self, kind: Any, version: int, given: Values) -> None:
        self._module, self._message = import_module(kind.__module__), kind.__name__
        self._version = version
        self._given = given

    def struct(self, spec: StructSpec) -> Any:
        made = self._class_of(spec)()
        for field in spec.fields:
            if self._version in field.versions:
                self._set(made, spec, field)
        return made

    def _class_of(self, spec: StructSpec) -> Any:
        """Structs whose name a response shares have the message's name in front."""
        return getattr(self._module, self._message + spec.name, None) or getattr(self._module, spec.name)

    def _set(self, made: Any, spec: StructSpec, field: FieldSpec) -> None:
        name = field.attribute
        given = self._given.get(f"{spec.name}.{name}", self._given.get(name, ...))
        if field.struct is not None:
            if given is ... or isinstance(given, str):
                value = self.struct(field.struct)
                given = [value] if field.array else value
        elif given is ... and field.array:
            given = [0] if str(field.primitive).startswith("int") else getattr(made, name)
        elif field.array and given is not None and not isinstance(given, list):
            given = [given]
        if given is not ...:
            setattr(made, name, given)
