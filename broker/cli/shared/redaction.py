"""Secrets among metadata records, which commands that print the log or the image replace by "[redacted]"."""

from typing import Any, Final

from broker.config.exposure import is_secret
from broker.metadata.image.config_image import ResourceType
from protocol.messages import Message
from protocol.messages.metadata_records import ConfigRecord, UserScramCredentialRecord

REDACTED: Final = "[redacted]"
_SCRAM_FIELDS: Final = ("salt", "storedKey", "serverKey")


def shown_config(resource_type: int, name: str, value: str) -> str:
    """Return the value of a stored config, or REDACTED for a password of a broker."""
    return REDACTED if resource_type == ResourceType.BROKER and is_secret(name) else value


def redact(message: Message, data: dict[str, Any]) -> dict[str, Any]:
    """Replace secrets in the JSON form of a metadata record, in place; return it."""
    if isinstance(message, ConfigRecord) and message.value is not None:
        data["value"] = shown_config(message.resource_type, message.name, message.value)
    elif isinstance(message, UserScramCredentialRecord):
        data.update(dict.fromkeys(_SCRAM_FIELDS, REDACTED))
    return data
