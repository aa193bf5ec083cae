"""Changes of the registry as rows of the tables, one by one because they are few.

Secrets are left out: for credentials and tokens `changes` names the user only, and for passwords in configs only the
fact that they were set.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from broker.config.definitions import broker_key
from broker.metadata.image.records import MetadataRecord, decode_record
from protocol.messages import metadata_records as messages
from protocol.primitives import uuid_to_text
from spark_jobs.metadata.registry import CHANGED, REMOVED, RegistryChange
from spark_jobs.metadata_tables.enum_names import (
    ACL_RESOURCES,
    CONFIG_RESOURCES,
    MECHANISMS,
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    SECURITY_PROTOCOLS,
    name_of,
)
from spark_jobs.metadata_tables.schemas import CHANGES, TABLES

HIDDEN: Final = "[hidden]"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_Row = dict[str, Any]


def tables_of_registry(changes: Iterable[RegistryChange]) -> dict[str, pa.Table]:
    """Return the tables in order, without empty ones."""
    rows: dict[str, list[_Row]] = defaultdict(list)
    for change in changes:
        before, after = _state(change.before), _state(change.after)
        rows[CHANGES].append(_change(change, before, after))
        table = _HISTORIES.get(change.entity.type)
        if table is not None:
            rows[table].append(_version(change, after if after is not None else _keys_of(table, before)))
    return {name: pa.Table.from_pylist(found, TABLES[name]) for name, found in rows.items()}


_HISTORIES: Final[Mapping[str, str]] = {
    "broker": "brokers",
    "config": "configs",
    "acl": "acls",
    "quota": "quotas",
    "feature": "features",
}
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "brokers": ("broker_id",),
    "configs": ("resource_type", "resource_name", "key"),
    "acls": ("acl_id",),
    "quotas": ("entity", "key"),
    "features": ("feature",),
}


def _keys_of(table: str, state: _Row | None) -> _Row:
    """Return the key columns of a version, for a row that marks the removal."""
    assert state is not None, "a change has a state on one side"
    return {key: state[key] for key in _KEYS[table]}


def _version(change: RegistryChange, state: _Row) -> _Row:
    where = {"from_offset": change.offset, "epoch": change.epoch, "time": _time(change.timestamp_ms)}
    return {**where, **state, "removed": change.operation == REMOVED}


def _change(change: RegistryChange, before: _Row | None, after: _Row | None) -> _Row:
    if change.operation == CHANGED and before is not None and after is not None:
        differing = [key for key in after if before.get(key) != after[key]]
        before, after = ({key: state.get(key) for key in differing} for state in (before, after))
    return {
        "offset": change.offset,
        "epoch": change.epoch,
        "time": _time(change.timestamp_ms),
        "entity_type": change.entity.type,
        "entity": _name(change),
        "topic": change.entity.key[1] if _is_of_topic(change) else None,
        "operation": change.operation,
        "before": _document(before),
        "after": _document(after),
        "is_summarized": change.is_summarized,
    }


def _is_of_topic(change: RegistryChange) -> bool:
    return change.entity.type == "config" and name_of(CONFIG_RESOURCES, int(change.entity.key[0] or 0)) == "topic"


def _name(change: RegistryChange) -> str:
    """Return a readable name: `topic:orders:retention.ms`, `user=alice,client-id=<default>:producer_byte_rate`."""
    kind, key = change.entity
    match kind:
        case "config":
            return ":".join((name_of(CONFIG_RESOURCES, int(key[0] or 0)), str(key[1]), str(key[2])))
        case "quota":
            return f"{_quota_entity(zip(key[:-1:2], key[1:-1:2], strict=True))}:{key[-1]}"
        case "scram":
            return f"{key[1]}:{name_of(MECHANISMS, int(key[0] or 0))}"
        case _:
            return ":".join(map(str, key)) or kind


def _quota_entity(parts: Iterable[tuple[object, object]]) -> str:
    return ",".join(f"{type}={'<default>' if name is None else name}" for type, name in parts)


def _document(state: _Row | None) -> str | None:
    return None if state is None else json.dumps(state, separators=(",", ":"))


def _time(timestamp_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=timestamp_ms)


# -- states ------------------------------------------------------------------------------------------------------------


def _state(frame: bytes | None) -> _Row | None:
    return None if frame is None else _fields(decode_record(frame))


def _fields(record: MetadataRecord) -> _Row:
    """Return the columns of a record's table, or for `changes` alone the columns that may be shown."""
    match record:
        case messages.RegisterBrokerRecord():
            return _broker(record)
        case messages.ConfigRecord():
            return {
                "resource_type": name_of(CONFIG_RESOURCES, record.resource_type),
                "resource_name": record.resource_name,
                "key": record.name,
                "value": HIDDEN if record.value and _is_secret(record.name) else record.value,
            }
        case messages.AccessControlEntryRecord():
            return _acl(record)
        case messages.ClientQuotaRecord():
            entity = _quota_entity((part.entity_type, part.entity_name) for part in record.entity)
            return {"entity": entity, "key": record.key, "value": record.value}
        case messages.FeatureLevelRecord():
            return {"feature": record.name, "level": record.feature_level}
        case _:
            return _others(record)


def _broker(record: messages.RegisterBrokerRecord) -> _Row:
    endpoints = [
        {
            "name": each.name,
            "host": each.host,
            "port": each.port,
            "security_protocol": name_of(SECURITY_PROTOCOLS, each.security_protocol),
        }
        for each in record.end_points
    ]
    return {
        "broker_id": record.broker_id,
        "broker_epoch": record.broker_epoch,
        "incarnation_id": uuid_to_text(record.incarnation_id),
        "rack": record.rack,
        "fenced": record.fenced,
        "in_controlled_shutdown": record.in_controlled_shutdown,
        "endpoints": endpoints,
        "directories": [uuid_to_text(each) for each in record.log_dirs],
    }


def _acl(record: messages.AccessControlEntryRecord) -> _Row:
    return {
        "acl_id": uuid_to_text(record.id),
        "resource_type": name_of(ACL_RESOURCES, record.resource_type),
        "resource_name": record.resource_name,
        "pattern_type": name_of(PATTERNS, record.pattern_type),
        "principal": record.principal,
        "host": record.host,
        "operation": name_of(OPERATIONS, record.operation),
        "permission_type": name_of(PERMISSIONS, record.permission_type),
    }


def _others(record: MetadataRecord) -> _Row:
    match record:
        case messages.RegisterControllerRecord():
            hosts = [f"{each.name}://{each.host}:{each.port}" for each in record.end_points]
            incarnation = uuid_to_text(record.incarnation_id)
            return {"controller_id": record.controller_id, "incarnation_id": incarnation, "endpoints": hosts}
        case messages.ProducerIdsRecord():
            return {"next_producer_id": record.next_producer_id}
        case messages.UserScramCredentialRecord():
            return {"mechanism": name_of(MECHANISMS, record.mechanism), "iterations": record.iterations}
        case messages.DelegationTokenRecord():
            return {"owner": record.owner, "requester": record.requester, "expires_ms": record.expiration_timestamp}
        case _:
            raise ValueError(f"{type(record).__name__} describes no entity of the registry, but changes refer to it")


def _is_secret(key: str) -> bool:
    known = broker_key(key)
    return known.sensitive if known is not None else key.endswith((".password", ".secret", ".jaas.config"))
