"""The file `quorum-state` in Kafka's format, byte by byte."""

import pytest

from broker.quorum.ready import ElectionState
from broker.runtime.quorum.state_file import InvalidQuorumState, QuorumStateFile, to_json
from protocol.primitives import uuid_from_text
from storage.checked_json import CHECKSUM
from storage.files import replace_file
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.quorum_values import make_election_state

DIRECTORY_ID = uuid_from_text("is52P1UlQWem0ILt--_h1Q")


@pytest.fixture
def file() -> QuorumStateFile:
    fs = checked(MemoryFileSystem())
    fs.make_directory("data")
    return QuorumStateFile(fs, "data")


def with_checksum(content: bytes) -> bytes:
    """Add the checksum, computed bit by bit from the definition of CRC-32C (RFC 3720, reflected)."""
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return content[:-1] + b',"ottlaCrc32c":%d}' % (checksum ^ 0xFFFFFFFF)


def test_version_0_is_kafkas_format_and_a_checksum() -> None:
    kafkas = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[],'
        b'"data_version":0}'
    )
    assert to_json(make_election_state(2, 1, version=0)) == with_checksum(kafkas)


def test_version_1_is_kafkas_format_and_a_checksum() -> None:
    kafkas = b'{"leaderId":-1,"leaderEpoch":2,"votedId":3,"votedDirectoryId":"is52P1UlQWem0ILt--_h1Q","data_version":1}'
    assert to_json(make_election_state(2, -1, 3, DIRECTORY_ID)) == with_checksum(kafkas)


@pytest.mark.parametrize("state", [make_election_state(7, 1, 2, DIRECTORY_ID), make_election_state(7, 1, 2, version=0)])
def test_any_flipped_bit_is_noticed_or_changes_no_state(state: ElectionState) -> None:
    content = to_json(state)
    accepted = 0
    for position in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        try:
            assert written(bytes(damaged)).read() == state
            accepted += 1
        except InvalidQuorumState:
            pass
    assert accepted <= 8 * len(CHECKSUM)  # a damaged name of the checksum hides the checksum, not the state


def test_file_without_checksum_is_accepted() -> None:
    file = written(b'{"leaderId":-1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"data_version":0}')
    assert file.read() == make_election_state(2, version=0)


def test_wrong_checksum_names_the_file() -> None:
    content = to_json(make_election_state(7, 1, 2, DIRECTORY_ID)).replace(b'"leaderEpoch":7', b'"leaderEpoch":6')
    with pytest.raises(InvalidQuorumState, match=r"^data/quorum-state is damaged, its checksum does not match"):
        written(content).read()


@pytest.mark.parametrize(
    "state", [ElectionState(), make_election_state(7, 1, 2, DIRECTORY_ID), make_election_state(7, 1, 2, version=0)]
)
def test_state_round_trips(file: QuorumStateFile, state: ElectionState) -> None:
    file.write(state)
    assert file.read() == state


def test_version_0_omits_the_voted_directory_id(file: QuorumStateFile) -> None:
    file.write(make_election_state(7, -1, 2, DIRECTORY_ID, version=0))
    assert file.read() == make_election_state(7, -1, 2, version=0)


def test_missing_file_is_no_state(file: QuorumStateFile) -> None:
    assert file.read() is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":1}',
        b'{"leaderId":1,"leaderEpoch":-2,"votedId":-1,"data_version":0}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":2}',
    ],
)
def test_invalid_content_raises_invalid_quorum_state(content: bytes) -> None:
    with pytest.raises(InvalidQuorumState):
        written(content).read()


def written(content: bytes) -> QuorumStateFile:
    fs = checked(MemoryFileSystem())
    fs.make_directory("data")
    replace_file(fs, "data/quorum-state", content)
    return QuorumStateFile(fs, "data")
