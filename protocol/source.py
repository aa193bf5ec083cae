"""Builder of Python source: indented lines, and the `struct.Struct` constants they use."""

from collections.abc import Iterator
from contextlib import contextmanager


class FunctionSource:
    """The lines of one function body. Names from `fresh` never repeat, so that nested loops do not share variables."""

    def __init__(self, struct_method: str) -> None:
        self._struct_method = struct_method
        self._lines: list[str] = []
        self._depth = 2
        self._constants: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def add(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add `header` and indent the lines added inside the `with`; an empty block gets a `pass`."""
        self.add(header)
        before = len(self._lines)
        self._depth += 1
        yield
        if len(self._lines) == before:
            self.add("pass")
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}_{self._counts[prefix]}"

    def constant(self, expression: str, prefix: str = "c") -> str:
        """Return the name of a module-level constant with this value; equal expressions share a name."""
        if expression not in self._constants:
            self._constants[expression] = self.fresh(prefix)
        return self._constants[expression]

    def struct(self, codes: str) -> str:
        """Return the name of the bound method of a big-endian Struct for these codes."""
        return self.constant(f'Struct(">{codes}").{self._struct_method}', self._struct_method)

    def array_struct(self, code: str) -> str:
        """Return the name of a table: number of items of this code -> bound method of the Struct for them."""
        return self.constant(f'array_structs("{code}", "{self._struct_method}")', f"{self._struct_method}_array")

    def iter_struct(self, codes: str) -> str:
        return self.constant(f'Struct(">{codes}").iter_unpack', "iter_unpack")

    @property
    def constants(self) -> list[str]:
        return [f"{name} = {expression}" for expression, name in self._constants.items()]

    @property
    def lines(self) -> list[str]:
        return self._lines
