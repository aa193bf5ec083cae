"""Values for any message in any version, built from its schema by hypothesis or by a seeded generator."""

import random
import sys
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from hypothesis import strategies as st

import schemas
from protocol import compiler
from protocol.decoding import FEW_ROWS
from protocol.layout import Layout
from protocol.messages import Message
from protocol.schema import INTEGER_BITS, FieldSpec, StructSpec

M = TypeVar("M", bound=Message)


class Chooser(Protocol):
    """A source of values."""

    def integer(self, low: int, high: int) -> int: ...
    def number(self) -> float: ...
    def text(self) -> str: ...
    def uuid(self) -> bytes: ...
    def data(self) -> bytes: ...


class DrawChooser:
    """A chooser that draws from hypothesis, which shrinks failures."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def number(self) -> float:
        return self._draw(st.floats(allow_nan=False))

    def text(self) -> str:
        text = self._draw(st.text(max_size=6))
        return text * self._draw(st.sampled_from((1, 1, 60)))

    def uuid(self) -> bytes:
        return self._draw(st.binary(min_size=16, max_size=16))

    def data(self) -> bytes:
        data = self._draw(st.binary(max_size=12))
        return data * self._draw(st.sampled_from((1, 1, 1, 500)))


class SeededChooser:
    """A chooser with a seeded generator that prefers bounds; fast, for fuzzing. `brief` avoids long texts and data."""

    def __init__(self, seed: int, *, brief: bool = False) -> None:
        self._random = random.Random(seed)
        self._words = (
            ("", "a", "topic-1", "grüße", "日本") if brief else ("", "a", "topic-1", "grüße", "日本", "x" * 130)
        )
        self._sizes = (0, 1, 5) if brief else (0, 1, 5, 20, 200, 5000)

    def integer(self, low: int, high: int) -> int:
        if self._random.random() < 0.2:
            return self._random.choice((low, high))
        return self._random.randint(low, high)

    def number(self) -> float:
        return self._random.uniform(-1e9, 1e9)

    def text(self) -> str:
        return self._random.choice(self._words) + str(self._random.randint(0, 99))

    def uuid(self) -> bytes:
        return self._random.randbytes(16)

    def data(self) -> bytes:
        return self._random.randbytes(self._random.choice(self._sizes))


def all_messages() -> list[type[Message]]:
    """Return every generated message class, in the order of the schemas."""
    return [compiler.class_named(path.rpartition("/")[2].removesuffix(".json")) for path in schemas.message_paths()]


def all_versions() -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in all_messages() for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)]


def build(cls: type[M], version: int, chooser: Chooser) -> M:
    """Build a message with chosen values in fields that `version` has, and defaults in the others."""
    builder = _Builder(Layout(compiler.spec_of(cls), version), cls, chooser)
    return cast(M, builder.struct(builder.layout.spec.struct, depth=0))


def messages(cls: type[M], version: int) -> st.SearchStrategy[M]:
    @st.composite
    def strategy(draw: st.DrawFn) -> M:
        return build(cls, version, DrawChooser(draw))

    return strategy()


class _Builder:
    def __init__(self, layout: Layout, cls: type[Message], chooser: Chooser) -> None:
        self.layout = layout
        self._chooser = chooser
        self._module = sys.modules[cls.__module__]
        self._names = compiler.struct_names(cls)

    def struct(self, struct: StructSpec, depth: int) -> object:
        make: Callable[..., object] = getattr(self._module, self._names[struct.name])
        return make(**{f.attribute: self._value(f, depth) for f in struct.fields if self._chosen(f)})

    def _chosen(self, field: FieldSpec) -> bool:
        return self.layout.inline(field) or (self.layout.tagged(field) and self._chooser.integer(0, 1) == 1)

    def _value(self, field: FieldSpec, depth: int) -> object:
        if self.layout.nullable(field) and self._chooser.integer(0, 3) == 0:
            return None
        if field.array:
            return [
                self._single(field, depth + 1) for _ in range(self._chooser.integer(0, self._longest(field, depth)))
            ]
        return self._single(field, depth)

    def _longest(self, field: FieldSpec, depth: int) -> int:
        """Return the longest array: flat rows in numbers that the decoder reads in bulk, nested ones in few."""
        if field.struct is not None and self.layout.fixed_width(field.struct):
            return FEW_ROWS + 2
        return 3 if depth == 0 else 2

    def _single(self, field: FieldSpec, depth: int) -> object:
        choose = self._chooser
        if field.struct is not None:
            return self.struct(field.struct, depth)
        match field.primitive:
            case "bool":
                return choose.integer(0, 1) == 1
            case "float64":
                return choose.number()
            case "uuid":
                return choose.uuid()
            case "string":
                return choose.text()
            case "bytes" | "records":
                return choose.data()
            case primitive:
                bits = INTEGER_BITS[str(primitive)]
                unsigned = str(primitive).startswith("u")
                return (
                    choose.integer(0, (1 << bits) - 1)
                    if unsigned
                    else choose.integer(-(1 << bits - 1), (1 << bits - 1) - 1)
                )
