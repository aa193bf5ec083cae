"""What dumping a file yields: entries, each as a line of text and as a JSON document."""

from dataclasses import dataclass
from typing import Protocol


class DumpEntry(Protocol):
    """One line of output."""

    def text(self) -> str: ...

    def document(self) -> dict[str, object] | None:
        """None for lines that only matter to people."""
        ...


class DumpError(Exception):
    """A file that cannot be read as what its name says; one sentence."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of prose; in JSON it appears only if it has a `kind`."""

    words: str
    kind: str | None = None

    def text(self) -> str:
        return self.words

    def document(self) -> dict[str, object] | None:
        return None if self.kind is None else {"kind": self.kind, "message": self.words.strip()}


@dataclass(frozen=True, slots=True)
class FieldsLine:
    """Named numbers: printed as "name: value name: value", in JSON as they are."""

    kind: str
    values: dict[str, object]

    def text(self) -> str:
        return " ".join(f"{name}: {value}" for name, value in self.values.items())

    def document(self) -> dict[str, object] | None:
        return {"kind": self.kind} | self.values
