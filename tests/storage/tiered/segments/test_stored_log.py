import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.tiered.errors import CorruptRemoteData
from storage.tiered.segments.stored_log import cut


@given(st.lists(st.binary(max_size=20), max_size=20), st.lists(st.integers(0, 15), max_size=20))
def test_chunks_do_not_depend_on_piece_sizes(pieces: list[bytes], sizes: list[int]) -> None:
    content = b"".join(pieces)
    try:
        chunks = list(cut(iter(pieces), sizes))
    except CorruptRemoteData:
        assert len(content) != sum(sizes)
        return
    assert b"".join(chunks) == content
    assert list(map(len, chunks)) == sizes


def test_piece_of_the_chunk_size_is_not_copied() -> None:
    pieces = [b"12345", b"67890"]
    assert [chunk is piece for chunk, piece in zip(cut(iter(pieces), [5, 5]), pieces, strict=True)] == [True, True]


def test_small_chunk_is_copied_from_a_large_piece() -> None:
    assert all(isinstance(chunk, bytes) for chunk in cut(iter([b"1234567890"]), [3, 7]))


@pytest.mark.parametrize(("content", "message"), [(b"1234", "1 bytes too early"), (b"123456", "sent more bytes")])
def test_object_of_another_size_is_corrupt(content: bytes, message: str) -> None:
    with pytest.raises(CorruptRemoteData, match=message):
        list(cut(iter([content]), [5]))
