"""Addresses of the metadata quorum: ``controller.quorum.voters`` and ``controller.quorum.bootstrap.servers``."""

import re
from collections.abc import Iterable

from broker.config.errors import ConfigError
from protocol.lazy_dataclass import lazy_dataclass

VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"

_ADDRESS = r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:@\[\]]*)):(?P<port>[0-9]{1,5})"
_VOTER = re.compile(r"(?P<id>[0-9]{1,9})@" + _ADDRESS)
_SERVER = re.compile(_ADDRESS)


@lazy_dataclass(frozen=True, slots=True)
class HostPort:
    host: str
    port: int


@lazy_dataclass(frozen=True, slots=True)
class ConfiguredVoter:
    """A static voter. An unusable address (empty, 0.0.0.0, port 0) is allowed, for the node itself."""

    id: int
    address: HostPort


def parse_voters(entries: Iterable[str]) -> tuple[ConfiguredVoter, ...]:
    """Parse ``id@host:port`` entries. Raise ConfigError."""
    voters = tuple(_parse_voter(entry) for entry in entries)
    if len({voter.id for voter in voters}) < len(voters):
        raise ConfigError(VOTERS, f"{VOTERS} must not have the same node id twice.")
    return voters


def _parse_voter(entry: str) -> ConfiguredVoter:
    match = _VOTER.fullmatch(entry)
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(VOTERS, f"{VOTERS} has the entry {entry!r} but every entry must be of the form id@host:port.")
    return ConfiguredVoter(int(match["id"]), HostPort(match["v6"] or match["host"] or "", int(match["port"])))


def parse_bootstrap_servers(entries: Iterable[str]) -> tuple[HostPort, ...]:
    """Parse ``host:port`` entries. Raise ConfigError."""
    return tuple(parse_host_port(BOOTSTRAP_SERVERS, entry) for entry in entries)


def parse_host_port(key: str, entry: str) -> HostPort:
    """Parse ``host:port`` (IPv6 in brackets). Raise ConfigError for ``key``."""
    match = _SERVER.fullmatch(entry)
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(key, f"{key} has {entry!r} but must be of the form host:port.")
    return HostPort(match["v6"] or match["host"] or "", int(match["port"]))
