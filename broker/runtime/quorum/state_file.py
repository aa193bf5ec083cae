"""The file `quorum-state`: this node's epoch, vote and leader, in Kafka's JSON format on one line.

A write goes to a temporary file, which is fsynced and renamed. Version 0 belongs to static voters: it has no voted
directory id, and contains unused fields whose absence Kafka treats as damage. Version 1 belongs to kraft.version 1.

The last field is a checksum, which Kafka's format lacks and Kafka's reader ignores. A rotten bit could otherwise turn
an epoch or a vote into another valid one, and two leaders could be elected in one epoch. A file without the field,
written by Kafka or by an earlier release, is accepted.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from broker.quorum.ready import ElectionState
from protocol.primitives import ZERO_UUID, uuid_from_text, uuid_to_text
from storage.checked_json import CHECKSUM, encode_checked, take_checksum
from storage.files import FileSystem, join, read_file, replace_file

FILE_NAME: Final = "quorum-state"


class InvalidQuorumState(Exception):
    """The file is invalid. A guessed epoch could elect two leaders in one epoch, so the node must not start."""


class QuorumStateFile:
    """The file in the directory of the metadata log. All methods block."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = join(directory, FILE_NAME)

    def read(self) -> ElectionState | None:
        """Return the state; None without a file, on a new node. Raise InvalidQuorumState, OSError."""
        return self.read_with_origin()[0]

    def read_with_origin(self) -> tuple[ElectionState | None, bool]:
        """Return the state, and whether another program wrote it: Kafka, or an earlier release.

        That program has then changed the log as well, without this release's files. Raise InvalidQuorumState, OSError.
        """
        if not self._fs.exists(self._path):
            return None, False
        try:
            content = json.loads(read_file(self._fs, self._path))
            is_foreign = CHECKSUM not in content
            return self._parsed(content), is_foreign
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidQuorumState(f"{self._path} does not parse: {error!r}") from error

    def _parsed(self, content: dict[str, Any]) -> ElectionState:
        if not take_checksum(content):
            raise InvalidQuorumState(
                f"{self._path} is damaged, its checksum does not match: "
                "replace the metadata directory as after the loss of a disk"
            )
        return _parse(content)

    def write(self, state: ElectionState) -> None:
        """Write the state durably. Raise OSError."""
        replace_file(self._fs, self._path, to_json(state))


def to_json(state: ElectionState) -> bytes:
    """Return the content of the file."""
    leader, vote = {"leaderId": state.leader_id, "leaderEpoch": state.epoch}, {"votedId": state.voted_id}
    content: dict[str, object]
    if state.version == 0:
        content = {"clusterId": ""} | leader | vote | {"appliedOffset": 0, "currentVoters": []}
    else:
        content = leader | vote | {"votedDirectoryId": uuid_to_text(state.voted_directory_id)}
    content |= {"data_version": state.version}
    return encode_checked(content)


def _parse(content: Mapping[str, Any]) -> ElectionState:
    version = content["data_version"]
    if version not in (0, 1):
        raise ValueError(f"data_version {version} is unknown")
    epoch, leader, voted = (content[key] for key in ("leaderEpoch", "leaderId", "votedId"))
    if not all(type(number) is int for number in (epoch, leader, voted)) or epoch < 0:
        raise ValueError("an epoch or id is not a number")
    directory = uuid_from_text(content["votedDirectoryId"]) if version == 1 else ZERO_UUID
    return ElectionState(epoch, leader, voted, directory, version)
