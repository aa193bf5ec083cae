"""The initial voters of a dynamic quorum, as given by `--initial-controllers` (KIP-853)."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from broker.cli.shared.failure import CommandFailed
from broker.config.broker_config import BrokerConfig
from protocol.messages.common_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from protocol.primitives import Uuid, uuid_from_text, uuid_to_text

STATIC_QUORUM = 0
DYNAMIC_QUORUM = 1
"""Levels of the feature kraft.version."""

_ENTRY = re.compile(r"(?P<id>\d+)@(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d+):(?P<directory>[\w-]+)")


class InitialController(NamedTuple):
    """An initial voter: its id, its endpoint, and the directory id of its metadata log."""

    id: int
    host: str
    port: int
    directory_id: Uuid

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.id}@{host}:{self.port}:{uuid_to_text(self.directory_id)}"


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """Parse "ID@HOST:PORT:DIRECTORY,…", with IPv6 addresses in brackets. Raises CommandFailed."""
    controllers = tuple(_parse(entry.strip()) for entry in text.split(",") if entry.strip())
    if not controllers:
        raise CommandFailed("--initial-controllers is empty; use ID@HOST:PORT:DIRECTORY,….")
    ids = [each.id for each in controllers]
    for node_id in ids:
        if ids.count(node_id) > 1:
            raise CommandFailed(f"--initial-controllers: node id {node_id} was specified more than once.")
    return controllers


def _parse(entry: str) -> InitialController:
    match = _ENTRY.fullmatch(entry)
    if match is None or int(match["id"]) >= 2**31 or not 0 < int(match["port"]) < 2**16:
        raise CommandFailed(f"--initial-controllers: {entry!r} is not of the form ID@HOST:PORT:DIRECTORY.")
    try:
        directory_id = uuid_from_text(match["directory"])
    except ValueError as error:
        raise CommandFailed(f"--initial-controllers: {match['directory']!r} is not a directory id: {error}.") from error
    return InitialController(int(match["id"]), match["v6"] or match["host"], int(match["port"]), directory_id)


def own_controller(config: BrokerConfig, directory_id: Uuid) -> InitialController:
    """Return this node as a voter, with the quorum's listener: the first of `controller.listener.names`."""
    listener = config.advertised_controller_listeners[0]
    return InitialController(config.node_id, listener.host or "localhost", listener.port, directory_id)


def voters_record(controllers: Iterable[InitialController], listener: str) -> VotersRecord:
    """Build the voters record with `listener` endpoints, sorted by id so that all nodes write the same bytes."""
    return VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=each.id,
                voter_directory_id=each.directory_id,
                endpoints=[Endpoint(listener, each.host, each.port)],
                kraft_version_feature=KRaftVersionFeature(STATIC_QUORUM, DYNAMIC_QUORUM),
            )
            for each in sorted(controllers)
        ]
    )
