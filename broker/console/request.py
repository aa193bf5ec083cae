"""Requests of the console's page: parameters, pages of lists, and errors as sentences."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from protocol.lazy_dataclass import lazy_dataclass

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]

PAGE_SIZE: Final = 50
PAGE_SIZE_MAX: Final = 200
TEXT_MAX: Final = 1_000
_OFFSET_MAX: Final = 2**63 - 1


class ConsoleError(Exception):
    """An answer with a status above 399 and one sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def bad_request(sentence: str) -> ConsoleError:
    return ConsoleError(HTTPStatus.BAD_REQUEST, sentence)


def not_found(sentence: str) -> ConsoleError:
    return ConsoleError(HTTPStatus.NOT_FOUND, sentence)


class Page(NamedTuple):
    """The part of a list that the page shows: `number` counts from 0."""

    number: int
    size: int
    search: str
    sort: str
    is_descending: bool


@lazy_dataclass(frozen=True, slots=True)
class ConsoleRequest:
    """A request with its principal; `body` is the JSON object of an action."""

    parameters: Mapping[str, str]
    principal: str
    host: str
    body: Json = field(default_factory=dict)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter. Raise ConsoleError without it, or if it is too long."""
        value = self.parameters.get(name, default)
        if value is None:
            raise bad_request(f'The parameter "{name}" is missing.')
        if len(value) > TEXT_MAX:
            raise bad_request(f'The parameter "{name}" is longer than {TEXT_MAX} characters.')
        return value

    def number(self, name: str, default: int | None = None, *, low: int = 0, high: int = _OFFSET_MAX) -> int:
        """Return an integer between `low` and `high`. Raise ConsoleError otherwise."""
        text = self.text(name, None if default is None else str(default))
        try:
            value = int(text) if len(text) < 25 else None
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise bad_request(f'The parameter "{name}" must be a number from {low} to {high}, not "{text[:40]}".')
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return one of `choices`. Raise ConsoleError otherwise."""
        value = self.text(name, default)
        if value not in choices:
            raise bad_request(f'The parameter "{name}" must be one of {", ".join(choices)}.')
        return value

    def page(self, sorts: Sequence[str] = ("name",)) -> Page:
        """Return the page of a list; `sorts` names the columns, the default first."""
        sort = self.text("sort", sorts[0])
        column = sort.removeprefix("-")
        if column not in sorts:
            raise bad_request(f'The list cannot be sorted by "{column[:40]}".')
        return Page(
            self.number("page", 0, high=10_000_000),
            self.number("size", PAGE_SIZE, low=1, high=PAGE_SIZE_MAX),
            self.text("search", "").lower(),
            column,
            sort.startswith("-"),
        )


def cut(items: Sequence[T], page: Page) -> Sequence[T]:
    """Return the items of a page."""
    begin = page.number * page.size
    return items[begin : begin + page.size]


def paged(items: Iterable[Json], page: Page, total: int, missing: Sequence[Json] = ()) -> Json:
    """Return the answer for a page of `total` items."""
    return {"total": total, "page": page.number, "size": page.size, "items": list(items), "missing": list(missing)}


View: TypeAlias = Callable[[ConsoleRequest], Awaitable[Json]]
"""Answers one path of the console with a JSON object. Raises ConsoleError."""
