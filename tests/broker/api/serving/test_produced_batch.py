"""The framing of a produce's records for one partition."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from broker.api.serving.produced_batch import only_batch, only_batch_generally
from protocol.errors import KafkaError
from protocol.primitives import Buffer
from protocol.records.builder import Record, build_batch

BATCH = build_batch([Record(5, b"k", b"v")])
OTHER_BYTES = st.dictionaries(st.sampled_from((8, 9, 10, 11, 16, 22)), st.integers(0, 255), max_size=2)
TAILS = st.sampled_from((b"", b"\0", BATCH[:12], BATCH[:20], BATCH))


@given(OTHER_BYTES, TAILS, st.integers(0, len(BATCH)), st.sampled_from((3, 6, 7, 13)))
def test_short_way_of_whole_batches_agrees_with_the_general_framing(
    changes: dict[int, int], tail: bytes, cut: int, version: int
) -> None:
    data = bytearray(BATCH + tail)
    for position, value in changes.items():
        data[position] = value
    sent = data[: len(data) - cut]

    def outcome(framing: Callable[[Buffer | None, int], Buffer]) -> object:
        try:
            return bytes(framing(memoryview(sent), version))
        except KafkaError as error:
            return type(error), error.code, error.message

    assert outcome(only_batch) == outcome(only_batch_generally)
