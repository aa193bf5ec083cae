"""Generates the source of a decoder: straight-line reads of one message in one version.

Shape of the generated `decode(buf, pos)` over a memoryview:

- Adjacent fixed-width fields, with the length that follows them, become one `unpack_from`. The read includes the first
  byte of a varint: below 128 it is the whole varint, otherwise a function reads the rest.
- Every count and length is checked against the remaining bytes before anything is allocated for it. A count is
  multiplied by the least size of an element, so that a false count fails here.
- Reading past the end raises IndexError or struct.error, which the function turns into DecodeError.
- Instances are made by `object.__new__` and filled attribute by attribute, which is twice as fast as `__init__`.
"""

from collections.abc import Mapping

from protocol.layout import FORMATS, Layout, width
from protocol.schema import FieldSpec, MessageSpec, StructSpec
from protocol.source import FunctionSource

FEW_ROWS = 4
"""With fewer rows, setting up `iter_unpack` costs more than it saves."""


def decoder_source(spec: MessageSpec, version: int, names: Mapping[str, str]) -> str:
    """Return source text of `decode(buf, pos) -> (message, end position)`; `names` maps structs to their classes."""
    return _Decoder(Layout(spec, version), names).source()


class _Decoder:
    def __init__(self, layout: Layout, names: Mapping[str, str]) -> None:
        self._layout = layout
        self._names = names
        self._out = FunctionSource("unpack_from")
        self._run: list[tuple[str, str]] = []
        """Pending fixed-width reads: (struct code, assignment target)."""

    def source(self) -> str:
        spec, version = self._layout.spec, self._layout.version
        self._instance(spec.struct, "m")
        self._flush()
        return "\n".join(
            [
                f"# {spec.name}, version {version}",
                *self._out.constants,
                "",
                "",
                "def decode(buf, pos):",
                "    end = len(buf)",
                "    try:",
                *self._out.lines,
                "    except (IndexError, StructError, UnicodeDecodeError) as error:",
                f'        raise DecodeError(f"{spec.name} v{version}: {{error}}") from error',
                "    return m, pos",
                "",
            ]
        )

    def _instance(self, struct: StructSpec, name: str) -> None:
        """Read one struct into a new instance called `name`."""
        self._out.add(f"{name} = new({self._names[struct.name]})")
        self._fields(struct, name)

    def _fields(self, struct: StructSpec, name: str) -> None:
        self._defaults(struct, name)
        for field in self._layout.inline_of(struct):
            self._field(field, f"{name}.{field.attribute}")
        if self._layout.flexible:
            self._tag_section(struct, name)

    def _defaults(self, struct: StructSpec, name: str) -> None:
        """Assign defaults to fields that this version lacks, and to tagged fields, which may be absent."""
        for field in struct.fields:
            if not self._layout.inline(field):
                self._default(field, f"{name}.{field.attribute}")

    def _default(self, field: FieldSpec, target: str) -> None:
        if field.struct is None or field.array or field.default is None:
            self._out.add(f"{target} = {default_expression(field)}")
            return
        inner = self._out.fresh("s")
        self._out.add(f"{target} = {inner} = new({self._names[field.struct.name]})")
        for part in field.struct.fields:
            self._default(part, f"{inner}.{part.attribute}")

    def _field(self, field: FieldSpec, target: str, *, in_tag: bool = False) -> None:
        if field.array:
            self._array(field, target)
        elif field.struct is None:
            self._primitive(field, target, nullable=self._layout.nullable(field))
        elif self._layout.nullable(field):
            self._nullable_struct(field.struct, target, "B" if in_tag else "b")
        else:
            inner = self._out.fresh("s")
            self._out.add(f"{target} = {inner} = new({self._names[field.struct.name]})")
            self._fields(field.struct, inner)

    def _nullable_struct(self, struct: StructSpec, target: str, code: str) -> None:
        """Read the leading marker: a signed byte, below 0 for null; in a tag section a varint, 0 for null."""
        self._read(code, "n")
        self._flush()
        with self._out.block("if n < 0:" if code == "b" else "if n == 0:"):
            self._out.add(f"{target} = None")
        with self._out.block("else:"):
            inner = self._out.fresh("s")
            self._instance(struct, inner)
            self._flush()
            self._out.add(f"{target} = {inner}")

    def _primitive(self, field: FieldSpec, target: str, *, nullable: bool) -> None:
        code = FORMATS.get(str(field.primitive))
        if code is not None:
            self._read(code, target)
        else:
            self._sized(field, target, nullable=nullable)

    def _sized(self, field: FieldSpec, target: str, *, nullable: bool) -> None:
        """Read a string, bytes or records: a length, then the content."""
        compact = self._layout.compact(field)
        if field.primitive == "string":
            self._length(field, "h", "string_size")
        else:
            self._length(field, "i", "uvarint")
        stop = "stop = pos + n - 1" if compact else "stop = pos + n"
        null = "n == 0" if compact else "n < 0"
        if nullable:
            with self._out.block(f"if {null}:"):
                self._out.add(f"{target} = None")
            with self._out.block("else:"):
                self._content(field, target, stop)
        else:
            self._refuse(null, field, "is null")
            self._content(field, target, stop)

    def _content(self, field: FieldSpec, target: str, stop: str) -> None:
        self._out.add(stop)
        self._refuse("stop > end", field, "exceeds the buffer")
        self._out.add(f"{target} = {_content_expression(field)}")
        self._out.add("pos = stop")

    def _array(self, field: FieldSpec, target: str) -> None:
        compact = self._layout.compact(field)
        self._length(field, "i", "uvarint")
        null = "n == 0" if compact else "n < 0"
        if self._layout.nullable(field):
            with self._out.block(f"if {null}:"):
                self._out.add(f"{target} = None")
            with self._out.block("else:"):
                self._elements(field, target, compact)
        else:
            self._refuse(null, field, "is null")
            self._elements(field, target, compact)

    def _elements(self, field: FieldSpec, target: str, compact: bool) -> None:
        if compact:
            self._out.add("n -= 1")
        least = self._layout.least_element(field)
        self._refuse(
            f"n * {least} > end - pos" if least > 1 else "n > end - pos",
            field,
            "counts more elements than the buffer holds",
        )
        code = FORMATS.get(str(field.primitive))
        if field.struct is not None:
            self._structs(field.struct, target)
        elif field.primitive == "uuid":
            self._out.add("stop = pos + n * 16")
            self._out.add(f"{target} = [u for (u,) in {self._out.iter_struct('16s')}(buf[pos:stop])]")
            self._out.add("pos = stop")
        elif code is not None:
            self._out.add(f"{target} = list({self._out.array_struct(code)}[n](buf, pos))")
            self._out.add(f"pos += n * {width(code)}" if width(code) > 1 else "pos += n")
        else:
            self._variable_elements(field, target)

    def _variable_elements(self, field: FieldSpec, target: str) -> None:
        rows, count = self._out.fresh("rows"), self._out.fresh("n")
        self._out.add(f"{target} = {rows} = []")
        self._out.add(f"{count} = n")
        with self._out.block(f"for _ in repeat(None, {count}):"):
            self._primitive(field, "v", nullable=False)
            self._flush()
            self._out.add(f"{rows}.append(v)")

    def _structs(self, struct: StructSpec, target: str) -> None:
        rows = self._out.fresh("rows")
        if self._layout.fixed_width(struct):
            self._out.add(f"{target} = {rows} = list(map(new, repeat({self._names[struct.name]}, n)))")
            self._fixed_rows(struct, rows)
            return
        row = self._out.fresh("r")
        self._out.add(f"{target} = {rows} = []")
        with self._out.block("for _ in repeat(None, n):"):
            self._instance(struct, row)
            self._flush()
            self._out.add(f"{rows}.append({row})")

    def _fixed_rows(self, struct: StructSpec, rows: str) -> None:
        """Read rows of one size by `iter_unpack`; few rows, or rows with a non-empty tag section, one by one.

        `t` says whether rows remain to be read one by one; in `iter_unpack` it is a row's count of tagged fields.
        """
        row = self._out.fresh("r")
        codes, targets, size = self._row_reads(struct, row)
        self._out.add(f"stop = pos + n * {size}")
        self._out.add(f"t = n < {FEW_ROWS}")
        pairs = f"zip({rows}, {self._out.iter_struct(codes)}(buf[pos:stop]))"
        with self._out.block("if not t:"), self._out.block(f"for {row}, ({targets}) in {pairs}:"):
            self._defaults(struct, row)
            if self._layout.flexible:
                with self._out.block("if t:"):
                    self._out.add("break")
        with self._out.block("if t:"), self._out.block(f"for {row} in {rows}:"):
            self._fields(struct, row)
            self._flush()
        with self._out.block("else:"):
            self._out.add("pos = stop")

    def _row_reads(self, struct: StructSpec, row: str) -> tuple[str, str, int]:
        """Return (struct codes, assignment targets, size) of a whole row; `t` is the count of its tagged fields."""
        fields = self._layout.inline_of(struct)
        codes = [FORMATS[str(field.primitive)] for field in fields]
        targets = [f"{row}.{field.attribute}" for field in fields]
        if self._layout.flexible:
            codes.append("B")
            targets.append("t")
        return "".join(codes), ", ".join(targets) + ",", sum(map(width, codes))

    def _tag_section(self, struct: StructSpec, name: str) -> None:
        self._read("B", "n")
        self._flush()
        tags = self._layout.tags_of(struct)
        with self._out.block("if n:"):
            if tags:
                self._tags(tags, name)
            else:
                self._out.add("pos = skip_tags(buf, pos, n)")

    def _tags(self, tags: tuple[FieldSpec, ...], name: str) -> None:
        stop = self._out.fresh("stop")
        self._more("n", "uvarint")
        with self._out.block("for _ in repeat(None, n):"):
            self._out.add("tag, pos = read_uvarint(buf, pos)")
            self._out.add("n, pos = read_uvarint(buf, pos)")
            self._out.add(f"{stop} = pos + n")
            with self._out.block(f"if {stop} > end:"):
                self._out.add(self._raise("a tagged field", "exceeds the buffer"))
            for index, field in enumerate(tags):
                with self._out.block(f"{'el' if index else ''}if tag == {field.tag}:"):
                    self._field(field, f"{name}.{field.attribute}", in_tag=True)
                    self._flush()
            with self._out.block("else:"):
                self._out.add(f"pos = {stop}")
            with self._out.block(f"if pos != {stop}:"):
                self._out.add(self._raise("a tagged field", "has the wrong size"))

    def _length(self, field: FieldSpec, code: str, reader: str) -> None:
        """Read a length or count of `field` into `n` in wire form: a varint, or an integer of this `code`."""
        if self._layout.compact(field):
            self._read("B", "n")
            self._flush()
            self._more("n", reader)
        else:
            self._read(code, "n")
            self._flush()

    def _more(self, variable: str, reader: str) -> None:
        with self._out.block(f"if {variable} > 127:"):
            self._out.add(f"{variable}, pos = rest_of_{reader}(buf, pos, {variable})")

    def _read(self, code: str, target: str) -> None:
        self._run.append((code, target))

    def _flush(self) -> None:
        """Write the pending fixed-width reads as one."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        size = sum(width(code) for code, _ in self._run)
        if codes == "B":
            self._out.add(f"{targets} = buf[pos]")
        else:
            comma = "," if len(self._run) == 1 else ""
            self._out.add(f"{targets}{comma} = {self._out.struct(codes)}(buf, pos)")
        self._out.add(f"pos += {size}")
        self._run.clear()

    def _refuse(self, condition: str, field: FieldSpec, problem: str) -> None:
        with self._out.block(f"if {condition}:"):
            self._out.add(self._raise(field.name, problem))

    def _raise(self, what: str, problem: str) -> str:
        spec = self._layout.spec
        return f'raise DecodeError("{spec.name} v{self._layout.version}: {what} {problem}")'


def default_expression(field: FieldSpec) -> str:
    """Return Python source for the default of a field that is not a struct."""
    if field.default is None:
        return "None"
    if field.array:
        return "[]"
    if field.primitive == "uuid":
        return "ZERO_UUID"
    return 'b""' if field.primitive == "bytes" else repr(field.default)


def _content_expression(field: FieldSpec) -> str:
    if field.primitive == "string":
        return 'str(buf[pos:stop], "utf-8")'
    return "buf[pos:stop]" if field.is_buffer else "bytes(buf[pos:stop])"
