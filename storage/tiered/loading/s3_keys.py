"""Settings of a bucket (`storage.s3.` and `storage.aws.`) out of the settings of remote storage.

A field of S3Settings has the name and type of its key, so keys are not listed here.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import cast, get_args

from storage.tiered.settings import SettingsReader
from storage.tiered.stores.s3_settings import S3Settings

_AWS_FIELDS = frozenset(
    {
        "access_key_id",
        "secret_access_key",
        "session_token",
        "credentials_file",
        "credentials_provider_class",
        "checksum_check_enabled",
        "certificate_check_enabled",
    }
)
"""Fields of S3Settings whose keys begin with `storage.aws.`; the others begin with `storage.s3.`."""


def s3_settings(reader: SettingsReader) -> S3Settings:
    """Return the settings. Raises ValueError, one sentence that names the key."""
    values: dict[str, str | int | bool] = {}
    for each in fields(S3Settings):
        value = _typed(reader, _s3_key(each.name), each.type)
        if value is not None:
            values[each.name] = value
    for name in ("bucket_name", "region"):
        if name not in values:
            reader.needed(_s3_key(name), "for segments to be kept in S3")
    try:
        return cast(Callable[..., S3Settings], S3Settings)(**values)
    except ValueError as error:
        raise ValueError(f"{str(error).replace('storage.', reader.full('storage.'))}.") from error


def _s3_key(field: str) -> str:
    group = "aws" if field in _AWS_FIELDS else "s3"
    return f"storage.{group}.{field.replace('_', '.')}"


def _typed(reader: SettingsReader, key: str, kind: object) -> str | int | bool | None:
    kinds = get_args(kind) or (kind,)
    if not reader.is_set(key):
        reader.known.add(key)
        return None
    if bool in kinds:
        return reader.boolean(key, False)
    if int in kinds:
        return reader.integer(key, None, least=1)
    return reader.text(key)
