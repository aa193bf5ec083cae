import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.tiered.errors import CorruptRemoteData
from storage.tiered.segments.stored_log import cut


@given(st.lists(st.binary(max_size=20), max_size=20), st.lists(st.integers(0, 15), max_size=20))
def test_pieces_are_cut_anew(pieces: list[bytes], sizes: list[int]) -> None:
    content = b"".join(pieces)
    try:
        chunks = list(cut(iter(pieces), sizes))
    except CorruptRemoteData:
        assert len(content) != sum(sizes)
        return
    assert b"".join(chunks) == content
    assert list(map(len, chunks)) == sizes


def test_a_piece_of_the_right_size_is_not_copied() -> None:
    pieces = [b"12345", b"67890"]
    assert [chunk is piece for chunk, piece in zip(cut(iter(pieces), [5, 5]), pieces, strict=True)] == [True, True]


def test_a_small_chunk_does_not_keep_a_large_piece_in_memory() -> None:
    assert all(isinstance(chunk, bytes) for chunk in cut(iter([b"1234567890"]), [3, 7]))


@pytest.mark.parametrize(("content", "complaint"), [(b"1234", "1 bytes too early"), (b"123456", "sent more bytes")])
def test_an_object_of_another_size_is_corrupt(content: bytes, complaint: str) -> None:
    with pytest.raises(CorruptRemoteData, match=complaint):
        list(cut(iter([content]), [5]))
