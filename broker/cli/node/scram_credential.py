"""SCRAM credentials of `storage format --add-scram`, parsed from text to records of the metadata log (RFC 5802).

Format: `SCRAM-SHA-256=[name=alice,password=…]`, with optional `iterations`, `salt` and `saltedpassword` (both base64),
as in Kafka.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.scram_mechanisms import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, SALT_BYTES, Mechanism
from broker.metadata.image.records import VersionedRecord
from protocol.messages.metadata_records import UserScramCredentialRecord

_ARGUMENT = re.compile(r"(?P<mechanism>[^=]+)=\[(?P<settings>.*)\]", re.DOTALL)
_KNOWN = frozenset({"name", "password", "iterations", "salt", "saltedpassword"})


def scram_record(argument: str, random_salt: Callable[[int], bytes] = secrets.token_bytes) -> VersionedRecord:
    """Build the record of one `--add-scram` argument. Raises CommandFailed, whose message never has the password."""
    match = _ARGUMENT.fullmatch(argument.strip())
    if match is None:
        raise CommandFailed("--add-scram is not of the form MECHANISM=[name=…,password=…].")
    mechanism = MECHANISMS.get(match["mechanism"])
    if mechanism is None:
        raise CommandFailed(f"The add-scram mechanism {match['mechanism']} is not supported.")
    settings = _settings(match["settings"])
    iterations = _iterations(settings.get("iterations", str(MIN_ITERATIONS)), match["mechanism"])
    salt = _decoded("salt", settings["salt"]) if "salt" in settings else random_salt(SALT_BYTES)
    salted = _salted_password(settings, mechanism, salt, iterations)
    stored_key = hashlib.new(mechanism.hash_name, _mac(mechanism, salted, b"Client Key")).digest()
    record = UserScramCredentialRecord(
        name=settings["name"],
        mechanism=mechanism.number,
        salt=salt,
        stored_key=stored_key,
        server_key=_mac(mechanism, salted, b"Server Key"),
        iterations=iterations,
    )
    return VersionedRecord(record, 0)


def _settings(text: str) -> dict[str, str]:
    pairs = [entry.partition("=") for entry in text.split(",") if entry.strip()]
    settings = {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}
    unknown = sorted(settings.keys() - _KNOWN)
    if unknown:
        raise CommandFailed(f"Unknown SCRAM configurations: {', '.join(unknown)}")
    if not settings.get("name"):
        raise CommandFailed("You must supply 'name' to add-scram")
    if ("password" in settings) == ("saltedpassword" in settings):
        raise CommandFailed("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if "saltedpassword" in settings and "salt" not in settings:
        raise CommandFailed("You must supply 'salt' with 'saltedpassword' to add-scram")
    return settings


def _iterations(text: str, mechanism: str) -> int:
    name = mechanism.replace("-", "_")
    if not text.isdecimal():
        raise CommandFailed(f"The 'iterations' value must be a number for add-scram using {name}")
    iterations = int(text)
    if iterations < MIN_ITERATIONS:
        raise CommandFailed(f"The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {name}")
    if iterations > MAX_ITERATIONS:
        raise CommandFailed(f"The 'iterations' value must be <= {MAX_ITERATIONS} for add-scram using {name}")
    return iterations


def _salted_password(settings: dict[str, str], mechanism: Mechanism, salt: bytes, iterations: int) -> bytes:
    if "saltedpassword" in settings:
        return _decoded("saltedpassword", settings["saltedpassword"])
    return hashlib.pbkdf2_hmac(mechanism.hash_name, settings["password"].encode(), salt, iterations)


def _mac(mechanism: Mechanism, key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, mechanism.hash_name)


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CommandFailed(f"The '{name}' of add-scram is not base64.") from error
