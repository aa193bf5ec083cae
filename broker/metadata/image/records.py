"""Framing of metadata records in the log: frame version, record key, record version, body.

The three numbers are unsigned varints; the frame version is always 1. The body is a message of
`protocol.messages.metadata_records`; control records are framed differently. Layout: KIP-631, "Record framing".
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, get_args

from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.messages import metadata_records as messages
from protocol.primitives import Buffer, decode_uvarint, encode_uvarint

FRAME_VERSION: Final = 1
_FRAME_VERSION_BYTE: Final = bytes((FRAME_VERSION,))

ImageRecord: TypeAlias = (
    messages.AccessControlEntryRecord
    | messages.BrokerRegistrationChangeRecord
    | messages.ClearElrRecord
    | messages.ClientQuotaRecord
    | messages.ConfigRecord
    | messages.DelegationTokenRecord
    | messages.FeatureLevelRecord
    | messages.FenceBrokerRecord
    | messages.PartitionChangeRecord
    | messages.PartitionRecord
    | messages.ProducerIdsRecord
    | messages.RegisterBrokerRecord
    | messages.RegisterControllerRecord
    | messages.RemoveAccessControlEntryRecord
    | messages.RemoveDelegationTokenRecord
    | messages.RemoveTopicRecord
    | messages.RemoveUserScramCredentialRecord
    | messages.TopicRecord
    | messages.UnfenceBrokerRecord
    | messages.UnregisterBrokerRecord
    | messages.UserScramCredentialRecord
)
"""Records that change the metadata image."""

TransactionMarkerRecord: TypeAlias = (
    messages.AbortTransactionRecord | messages.BeginTransactionRecord | messages.EndTransactionRecord
)
"""Records that delimit a metadata transaction (KIP-868). The loader consumes them; no delta sees them."""

IgnoredRecord: TypeAlias = messages.NoOpRecord | messages.ZkMigrationStateRecord
"""Records without effect on the image, ignored on purpose.

An idle controller writes NoOpRecord to advance the log end offset (KIP-835). ZkMigrationStateRecord is a remnant of the
migration from ZooKeeper in logs that older Kafka releases began; no release that Ottla interoperates with reads it.
"""

MetadataRecord: TypeAlias = ImageRecord | TransactionMarkerRecord | IgnoredRecord
"""Every record type of `schemas/metadata`. A new type belongs to one of the three unions; mypy and the tests over
`tests/broker/metadata/record_samples.py` then name each place that must handle it.
"""

METADATA_RECORDS: Final[tuple[type[MetadataRecord], ...]] = get_args(MetadataRecord)

_BY_KEY: Final[Mapping[int, type[MetadataRecord]]] = {
    record_type.API_KEY: record_type for record_type in METADATA_RECORDS
}


class InvalidMetadata(Exception):
    """Records that contradict each other or the state: the log or its writer is broken, and the node must stop."""


class VersionedRecord(NamedTuple):
    """A record with the version to write it in, which the finalized metadata.version decides."""

    message: MetadataRecord
    version: int


def encode_record(message: MetadataRecord, version: int) -> bytes:
    """Return the frame of a record, the value of a log record."""
    head = _FRAME_VERSION_BYTE + encode_uvarint(message.API_KEY) + encode_uvarint(version)
    return head + encode_bytes(message, version)


def decode_record(frame: Buffer) -> MetadataRecord:
    """Return the record in a frame. Raises DecodeError for an unknown key or version, or remaining bytes."""
    frame_version, position = decode_uvarint(frame, 0)
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"metadata record frame version is {frame_version}, not {FRAME_VERSION}")
    key, position = decode_uvarint(frame, position)
    version, position = decode_uvarint(frame, position)
    record_type = _BY_KEY.get(key)
    if record_type is None:
        raise DecodeError(f"metadata record key {key} is unknown")
    if not record_type.MIN_VERSION <= version <= record_type.MAX_VERSION:
        raise DecodeError(f"version {version} of {record_type.__name__} is unknown")
    message, end = decode(record_type, frame, version, position)
    if end != len(frame):
        raise DecodeError(f"{len(frame) - end} bytes are left over after a {record_type.__name__}")
    return message
