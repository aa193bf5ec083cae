"""Generates the source of an encoder: straight-line writes of one message in one version.

Shape of the generated `encode(m, out, chunks)`:

- `out` is a bytearray that may already hold a header; the function appends to it. A large buffer, such as records, is
  not copied: `out` and the buffer go to `chunks`, and a new `out` begins.
- Adjacent fixed-width values, with the length that follows them, become one `pack`.
- A field that this version lacks must have its default, unless it is ignorable: values of requests and records are
  never dropped silently. Responses are different: a handler fills every field, and an old client gets the fields of its
  version; otherwise every handler would have to know the history of its response.
- Tagged fields are written when they differ from their default, each through its own buffer to get the size.
"""

from collections.abc import Mapping

from protocol.layout import FORMATS, Layout
from protocol.schema import FieldSpec, MessageSpec, StructSpec
from protocol.source import FunctionSource

CHUNK_BYTES = 4096
"""A longer buffer becomes a chunk of its own; copying a shorter one costs less than another entry in a writev."""


def encoder_source(spec: MessageSpec, version: int, names: Mapping[str, str]) -> str:
    """Return source text of `encode(m, out, chunks)`, which extends `chunks`; `names` maps structs to their classes."""
    return _Encoder(Layout(spec, version), names).source()


class _Encoder:
    def __init__(self, layout: Layout, names: Mapping[str, str]) -> None:
        self._layout = layout
        self._names = names
        self._out = FunctionSource("pack")
        self._run: list[tuple[str, str]] = []
        """Pending fixed-width writes: (struct code, expression)."""
        self._tag_depth = 0

    def source(self) -> str:
        spec, version = self._layout.spec, self._layout.version
        self._struct(spec.struct, "m")
        self._flush()
        return "\n".join(
            [
                f"# {spec.name}, version {version}",
                *self._out.constants,
                "",
                "",
                "def encode(m, out, chunks):",
                "    try:",
                *(self._out.lines or ["        pass"]),
                "    except (StructError, AttributeError, TypeError, UnicodeEncodeError) as error:",
                f'        raise EncodeError(f"{spec.name} v{version}: {{error}}") from error',
                "    if out:",
                "        chunks.append(out)",
                "",
            ]
        )

    def _struct(self, struct: StructSpec, name: str) -> None:
        for field in struct.fields if self._layout.spec.kind != "response" else ():
            if not self._layout.present(field) and not field.ignorable:
                self._refuse_unless_default(field, f"{name}.{field.attribute}")
        for field in self._layout.inline_of(struct):
            self._field(field, f"{name}.{field.attribute}")
        if self._layout.flexible:
            self._tag_section(self._layout.tags_of(struct), name)

    def _refuse_unless_default(self, field: FieldSpec, value: str) -> None:
        with self._out.block(f"if {self._differs(field, value)}:"):
            self._out.add(self._raise(f"{field.name} does not exist in this version"))

    def _differs(self, field: FieldSpec, value: str) -> str:
        """Return an expression: whether `value` differs from the field's default."""
        if field.default is None:
            return f"{value} is not None"
        if field.struct is not None and not field.array:
            return self._struct_differs(field.struct, value)
        if field.array or field.primitive == "bytes":
            may_be_null = field.nullable.first <= field.nullable.last
            return f"({value} is None or len({value}))" if may_be_null else f"len({value})"
        if field.primitive == "uuid":
            return f"{value} != ZERO_UUID"
        if field.primitive == "bool":
            return f"not {value}" if field.default else f"{value}"
        return f"{value} != {field.default!r}"

    def _struct_differs(self, struct: StructSpec, value: str) -> str:
        if any(field.struct is not None or field.array for field in struct.fields):
            return f"{value} != {self._out.constant(self._names[struct.name] + '()', 'default')}"
        parts = [self._differs(field, f"{value}.{field.attribute}") for field in struct.fields]
        return f"({' or '.join(parts)})"

    def _field(self, field: FieldSpec, value: str) -> None:
        if field.array:
            self._array(field, value)
        elif field.struct is None:
            self._primitive(field, value, nullable=self._layout.nullable(field))
        elif self._layout.nullable(field):
            self._nullable_struct(field.struct, value)
        else:
            inner = self._out.fresh("s")
            self._out.add(f"{inner} = {value}")
            self._struct(field.struct, inner)

    def _nullable_struct(self, struct: StructSpec, value: str) -> None:
        """Write the leading marker: -1 or 1; in a tag section 0 or 1."""
        inner = self._out.fresh("s")
        self._flush()
        self._out.add(f"{inner} = {value}")
        with self._out.block(f"if {inner} is None:"):
            self._write("b", "0" if self._tag_depth else "-1")
            self._flush()
        with self._out.block("else:"):
            self._write("b", "1")
            self._struct(struct, inner)
            self._flush()

    def _primitive(self, field: FieldSpec, value: str, *, nullable: bool) -> None:
        code = FORMATS.get(str(field.primitive))
        if code is not None:
            self._write(code, value)
        else:
            self._sized(field, value, nullable=nullable)

    def _sized(self, field: FieldSpec, value: str, *, nullable: bool) -> None:
        """Write a string, bytes or records: a length, then the content."""
        compact = self._layout.compact(field)
        content = f"{value}.encode()" if field.primitive == "string" else value
        if nullable:
            with self._out.block(f"if {value} is None:"):
                self._out.add('b = b""')
                self._out.add("n = 0" if compact else "n = -1")
            with self._out.block("else:"):
                self._out.add(f"b = {content}")
                self._out.add("n = len(b) + 1" if compact else "n = len(b)")
        else:
            self._out.add(f"b = {content}")
            self._out.add("n = len(b) + 1" if compact else "n = len(b)")
        if field.primitive == "string":
            self._length(field, "h", "compact_string_prefix(n - 1)")
        else:
            self._length(field, "i", "uvarint(n)")
        if field.is_buffer and not self._tag_depth:
            self._buffer()
        else:
            self._out.add("out += b")

    def _buffer(self) -> None:
        with self._out.block(f"if n > {CHUNK_BYTES}:"):
            self._out.add("chunks.append(out)")
            self._out.add("chunks.append(b)")
            self._out.add("out = bytearray()")
        with self._out.block("else:"):
            self._out.add("out += b")

    def _array(self, field: FieldSpec, value: str) -> None:
        compact = self._layout.compact(field)
        rows = self._out.fresh("rows")
        self._out.add(f"{rows} = {value}")
        count = f"len({rows}) + 1" if compact else f"len({rows})"
        if self._layout.nullable(field):
            with self._out.block(f"if {rows} is None:"):
                self._out.add("n = 0" if compact else "n = -1")
                self._out.add(f"{rows} = ()")
            with self._out.block("else:"):
                self._out.add(f"n = {count}")
        else:
            self._out.add(f"n = {count}")
        self._length(field, "i", "uvarint(n)")
        self._elements(field, rows)

    def _elements(self, field: FieldSpec, rows: str) -> None:
        code = FORMATS.get(str(field.primitive))
        if field.primitive == "uuid" or code is None:
            row = self._out.fresh("r")
            with self._out.block(f"for {row} in {rows}:"):
                if field.struct is not None:
                    self._struct(field.struct, row)
                else:
                    self._primitive(field, row, nullable=False)
                self._flush()
        else:
            self._out.add(f"out += {self._out.array_struct(code)}[len({rows})](*{rows})")

    def _tag_section(self, tags: tuple[FieldSpec, ...], name: str) -> None:
        """Write the count of tagged fields, then tag, size and value of each; nearly always there is none."""
        if not tags:
            self._write("x", "")
            return
        conditions = [self._differs(field, f"{name}.{field.attribute}") for field in tags]
        pending = list(self._run)
        with self._out.block(f"if {' or '.join(conditions)}:"):
            self._flush()
            flags = [self._out.fresh("t") for _ in tags]
            for flag, condition in zip(flags, conditions, strict=True):
                self._out.add(f"{flag} = bool({condition})")
            self._out.add(f"out.append({' + '.join(flags)})")
            for flag, field in zip(flags, tags, strict=True):
                with self._out.block(f"if {flag}:"):
                    self._tag(field, f"{name}.{field.attribute}")
        self._run = pending
        with self._out.block("else:"):
            self._write("x", "")
            self._flush()

    def _tag(self, field: FieldSpec, value: str) -> None:
        outer = self._out.fresh("outer")
        self._out.add(f"{outer} = out")
        self._out.add("out = bytearray()")
        self._tag_depth += 1
        self._field(field, value)
        self._flush()
        self._tag_depth -= 1
        self._out.add(f"{outer} += uvarint({field.tag})")
        self._out.add(f"{outer} += uvarint(len(out))")
        self._out.add(f"{outer} += out")
        self._out.add(f"out = {outer}")

    def _length(self, field: FieldSpec, code: str, long_varint: str) -> None:
        """Write `n`, a length or count in wire form, after the pending run.

        `code` is the format in an inflexible version; `long_varint` makes the bytes if one byte is not enough.
        """
        if not self._layout.compact(field):
            self._write(code, "n")
            self._flush()
            return
        pending = list(self._run)
        with self._out.block("if n < 128:"):
            self._write("B", "n")
            self._flush()
        self._run = pending
        with self._out.block("else:"):
            self._flush()
            self._out.add(f"out += {long_varint}")

    def _write(self, code: str, value: str) -> None:
        self._run.append((code, value))

    def _flush(self) -> None:
        """Write the pending fixed-width values as one."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(value for code, value in self._run if code != "x")
        if codes == "B":
            self._out.add(f"out.append({values})")
        elif codes == "x":
            self._out.add("out.append(0)")
        else:
            self._out.add(f"out += {self._out.struct(codes)}({values})")
        self._run.clear()

    def _raise(self, problem: str) -> str:
        spec = self._layout.spec
        return f'raise EncodeError("{spec.name} v{self._layout.version}: {problem}")'
