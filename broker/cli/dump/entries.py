"""The entries of a dump: each prints itself as a line of text and as a JSON document."""

from typing import Protocol

from protocol.lazy_dataclass import lazy_dataclass


class DumpEntry(Protocol):
    """An entry of the output."""

    def text(self) -> str: ...

    def document(self) -> dict[str, object] | None:
        """Return the JSON document; None for entries of the text output only."""
        ...


class DumpError(Exception):
    """A file whose content does not match its name."""


@lazy_dataclass(frozen=True, slots=True)
class TextLine:
    """A line of text. It appears in the JSON output only with a `kind`."""

    content: str
    kind: str | None = None

    def text(self) -> str:
        return self.content

    def document(self) -> dict[str, object] | None:
        return None if self.kind is None else {"kind": self.kind, "message": self.content.strip()}


@lazy_dataclass(frozen=True, slots=True)
class FieldsLine:
    """Named numbers, printed as "name: value name: value"."""

    kind: str
    values: dict[str, object]

    def text(self) -> str:
        return " ".join(f"{name}: {value}" for name, value in self.values.items())

    def document(self) -> dict[str, object] | None:
        return {"kind": self.kind} | self.values
