"""Encodings equal those of an independent implementation (kio), for every version of every message in it."""

import pytest
from hypothesis import given

from protocol import compiler
from protocol.layout import Layout
from protocol.messages import Message
from protocol.schema import StructSpec
from tests.protocol import kio_models as kio
from tests.protocol.profile import few_examples
from tests.protocol.values import all_versions, messages

COVERED = [(cls, version) for cls, version in all_versions() if kio.kio_class(cls, version) is not None]


@pytest.mark.parametrize(("cls", "version"), COVERED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_kio_encodes_and_decodes_the_same_bytes(cls: type[Message], version: int) -> None:
    model = kio.kio_class(cls, version)

    @few_examples
    @given(messages(cls, version))
    def same(message: Message) -> None:
        kio.clamp(message, model)
        encoded = compiler.encode_bytes(message, version)
        entity, size = kio.read(model, encoded)
        theirs = kio.as_ours(entity, message)
        assert size == len(encoded)
        assert kio.plain(message, theirs) == theirs
        assert kio.write(entity) == encoded

    same()


@pytest.mark.parametrize(("cls", "version"), COVERED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_kio_has_the_same_fields(cls: type[Message], version: int) -> None:
    layout = Layout(compiler.spec_of(cls), version)
    assert _count(layout, layout.spec.struct) == kio.field_count(kio.kio_class(cls, version))


def test_kio_covers_every_request_and_response_but_those_it_lacks() -> None:
    missing = {cls.__name__ for cls, version in all_versions() if cls.SCHEMA.startswith("rpc/")}
    missing -= {cls.__name__ for cls, _ in COVERED}
    missing -= {"CreateMetadataSnapshotRequest", "CreateMetadataSnapshotResponse"}  # Ottla's own APIs
    missing -= {"RestoreTopicsRequest", "RestoreTopicsResponse"}
    missing -= {"DescribeNodeRequest", "DescribeNodeResponse"}
    assert missing == set()
    assert len(COVERED) > 500


def _count(layout: Layout, struct: StructSpec) -> int:
    present = [field for field in struct.fields if layout.present(field)]
    return len(present) + sum(_count(layout, field.struct) for field in present if field.struct is not None)
