"""The file `quorum-state`: which epoch this node has seen, whom it voted for and who led, in Kafka's JSON (one line).

It is written aside, fsynced and renamed before anything depends on it. Version 0 belongs to static voters, version 1 to
kraft.version 1; both are read, version 1 is written.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from protocol.primitives import ZERO_UUID, Uuid, uuid_from_text, uuid_to_text
from storage.files import FileSystem, join, read_file, replace_file

FILE_NAME: Final = "quorum-state"
NOBODY: Final = -1
_VERSION: Final = 1


class InvalidQuorumState(Exception):
    """The file does not parse. Guessing an epoch could elect two leaders in one, so the node must not start."""


@dataclass(frozen=True, slots=True)
class QuorumStateFile:
    """The durable part of the quorum's state; -1 stands for nobody."""

    leader_epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: Uuid = ZERO_UUID

    @classmethod
    def read(cls, fs: FileSystem, directory: str) -> "QuorumStateFile":
        """The state on disk, or that of a node that never took part. Raises InvalidQuorumState."""
        path = join(directory, FILE_NAME)
        if not fs.exists(path):
            return cls()
        try:
            return cls._parse(json.loads(read_file(fs, path)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidQuorumState(f"{path} does not parse: {error!r}") from error

    def write(self, fs: FileSystem, directory: str) -> None:
        """Durable when it returns; blocks."""
        replace_file(fs, join(directory, FILE_NAME), self.to_json())

    def to_json(self) -> bytes:
        """The file's content."""
        content = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": self.voted_id,
            "votedDirectoryId": uuid_to_text(self.voted_directory_id),
            "data_version": _VERSION,
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def _parse(cls, content: Mapping[str, Any]) -> "QuorumStateFile":
        version = content["data_version"]
        if version not in (0, 1):
            raise ValueError(f"data_version {version} is unknown")
        epoch, leader, voted = (content[key] for key in ("leaderEpoch", "leaderId", "votedId"))
        if not all(type(number) is int for number in (epoch, leader, voted)) or epoch < 0:
            raise ValueError("an epoch or id is not a number")
        directory = uuid_from_text(content["votedDirectoryId"]) if version == 1 else ZERO_UUID
        return cls(epoch, leader, voted, directory)
