"""JSON of a message, as written by Kafka's generated converters.

Fields have the schema's names in camelCase and the schema's order. Fields that the version lacks are omitted, and so
are tagged fields with their default value. UUIDs are 22 base64 characters, bytes plain base64.
"""

import base64
from typing import cast

from protocol.compiler import spec_of
from protocol.layout import Layout
from protocol.messages import Message
from protocol.primitives import ZERO_UUID, Uuid, uuid_to_text
from protocol.schema import FieldSpec, StructSpec

Json = dict[str, object]


def message_json(message: Message, version: int) -> Json:
    """Return the JSON object of `message` in `version`."""
    spec = spec_of(type(message))
    return _struct(message, spec.struct, Layout(spec, version))


def _struct(value: object, struct: StructSpec, layout: Layout) -> Json:
    shown: Json = {}
    for field in struct.fields:
        if layout.present(field):
            content = getattr(value, field.attribute)
            if not (layout.tagged(field) and _is_default(content, field)):
                shown[field.name[0].lower() + field.name[1:]] = _field(content, field, layout)
    return shown


def _is_default(content: object, field: FieldSpec) -> bool:
    if field.default is None:
        return content is None
    if field.array or field.primitive == "bytes":
        return content is not None and len(cast(list[object], content)) == 0
    if field.struct is not None:
        return content is not None and content == type(content)()
    return content == (ZERO_UUID if field.primitive == "uuid" else field.default)


def _field(content: object, field: FieldSpec, layout: Layout) -> object:
    if content is None:
        return None
    if field.array:
        return [_element(item, field, layout) for item in cast(list[object], content)]
    return _element(content, field, layout)


def _element(item: object, field: FieldSpec, layout: Layout) -> object:
    if field.struct is not None:
        return _struct(item, field.struct, layout)
    if field.primitive == "uuid":
        return uuid_to_text(cast(Uuid, item))
    if field.primitive in ("bytes", "records"):
        return base64.b64encode(cast(bytes, item)).decode("ascii")
    return item
