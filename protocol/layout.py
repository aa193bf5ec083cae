"""The layout of a message in one version: its fields, the encoding of each, and the least size."""

from protocol.lazy_dataclass import lazy_dataclass
from protocol.schema import FieldSpec, MessageSpec, StructSpec

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""`struct` codes of the fixed-width primitives."""

_WIDTHS = {"?": 1, "b": 1, "B": 1, "x": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}


def width(code: str) -> int:
    """Return the size in bytes of one item of a `struct` code."""
    return _WIDTHS[code]


@lazy_dataclass(frozen=True, slots=True)
class Layout:
    """One version of a message."""

    spec: MessageSpec
    version: int

    @property
    def flexible(self) -> bool:
        return self.version in self.spec.flexible

    def compact(self, field: FieldSpec) -> bool:
        """Whether lengths of this field are varints of length + 1 (KIP-482)."""
        return self.flexible and not field.never_flexible

    def present(self, field: FieldSpec) -> bool:
        return self.version in field.versions

    def tagged(self, field: FieldSpec) -> bool:
        return self.version in field.tagged

    def inline(self, field: FieldSpec) -> bool:
        """Whether the field is written in the order of fields and not in the tag section."""
        return self.present(field) and not self.tagged(field)

    def nullable(self, field: FieldSpec) -> bool:
        return self.version in field.nullable

    def tags_of(self, struct: StructSpec) -> tuple[FieldSpec, ...]:
        """Return the tagged fields in the order in which they are written."""
        return tuple(sorted((f for f in struct.fields if self.tagged(f)), key=lambda f: f.tag or 0))

    def inline_of(self, struct: StructSpec) -> tuple[FieldSpec, ...]:
        return tuple(f for f in struct.fields if self.inline(f))

    def fixed_width(self, struct: StructSpec) -> bool:
        """Whether every inline field has a fixed width; the tag section does not count."""
        return all(not field.array and field.primitive in FORMATS for field in self.inline_of(struct))

    def least_size(self, struct: StructSpec) -> int:
        """Return the size of the smallest encoding, at least 1; it bounds the elements that can follow a count."""
        size = sum(self._least_field(field) for field in self.inline_of(struct))
        return max(1, size + self.flexible)

    def least_element(self, field: FieldSpec) -> int:
        """Return the size of the smallest element of an array."""
        if field.struct is not None:
            return self.least_size(field.struct)
        code = FORMATS.get(str(field.primitive))
        return width(code) if code else self._least_prefix(field)

    def _least_field(self, field: FieldSpec) -> int:
        if field.array:
            return 1 if self.compact(field) else 4
        if field.struct is not None:
            return 1 if self.nullable(field) else self.least_size(field.struct)
        return self.least_element(field)

    def _least_prefix(self, field: FieldSpec) -> int:
        if self.compact(field):
            return 1
        return 2 if field.primitive == "string" else 4
