"""Comparison of replicas' log files."""

from pathlib import Path

from tests.chaos.replicas import CHUNK_BYTES, difference, wait_equal_sizes


def replica(directory: Path, *segments: bytes) -> Path:
    directory.mkdir()
    for number, data in enumerate(segments):
        (directory / f"{number:020}.log").write_bytes(data)
    return directory


def test_replicas_with_different_segments_are_equal(tmp_path: Path) -> None:
    data = bytes(range(256)) * (CHUNK_BYTES // 128)
    one, two = replica(tmp_path / "1", data), replica(tmp_path / "2", data[:70_000], data[70_000:])
    assert difference([one, two]) is None
    assert wait_equal_sizes([[one, two]], timeout_s=0)


def test_changed_byte_is_located(tmp_path: Path) -> None:
    data = bytes(2 * CHUNK_BYTES)
    changed = data[: CHUNK_BYTES + 7] + b"x" + data[CHUNK_BYTES + 8 :]
    replicas = [replica(tmp_path / "1", data), replica(tmp_path / "2", data), replica(tmp_path / "3", changed)]
    assert f"differ at byte {CHUNK_BYTES + 7} of" in (difference(replicas) or "")


def test_short_replica_is_a_difference(tmp_path: Path) -> None:
    replicas = [replica(tmp_path / "1", b"abc"), replica(tmp_path / "2", b"ab")]
    assert "differ at byte 2 of 3" not in (difference(replicas[:1]) or "")
    assert "differ at byte 2 " in (difference(replicas) or "")
    assert not wait_equal_sizes([replicas], timeout_s=0)
