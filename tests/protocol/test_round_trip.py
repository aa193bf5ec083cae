"""Every message in every version decodes to an equal value after encoding, whatever the buffer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import compiler
from protocol.errors import EncodeError
from protocol.messages import Message
from tests.protocol.profile import few_examples
from tests.protocol.values import all_messages, all_versions, messages


@pytest.mark.parametrize(("cls", "version"), all_versions(), ids=lambda value: getattr(value, "__name__", str(value)))
def test_values_round_trip(cls: type[Message], version: int) -> None:
    @few_examples
    @given(messages(cls, version))
    def survives(message: Message) -> None:
        encoded = compiler.encode_bytes(message, version)
        assert compiler.decode(cls, encoded, version) == (message, len(encoded))
        assert compiler.decode(cls, bytearray(b"??" + encoded + b"!"), version, 2) == (message, len(encoded) + 2)

    survives()


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_encodable_defaults_round_trip(cls: type[Message]) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        encoded = compiler.encode_bytes(cls(), version)
        assert compiler.decode(cls, encoded, version) == (cls(), len(encoded))


@few_examples
@given(st.data())
def test_unknown_versions_are_refused(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(all_messages()))
    for version in (cls.MIN_VERSION - 1, cls.MAX_VERSION + 1):
        with pytest.raises(EncodeError, match="has no version"):
            compiler.encode(cls(), version)
