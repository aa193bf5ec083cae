"""Typed access to the fields of foreign JSON: requested fields are checked, unknown ones are ignored."""

import base64
import json
from collections.abc import Mapping


class JsonFields:
    """One JSON object. Methods raise ValueError with the path of a field that is missing or has another type."""

    def __init__(self, fields: Mapping[str, object], path: str = "") -> None:
        self._fields = fields
        self._path = path

    @classmethod
    def parse(cls, content: bytes) -> "JsonFields":
        try:
            document: object = json.loads(content)
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error
        return cls(_as_fields(document, "the document"))

    def __contains__(self, name: str) -> bool:
        """Whether the field exists and is not null."""
        return self._fields.get(name) is not None

    def names(self) -> list[str]:
        return list(self._fields)

    def integer(self, name: str) -> int:
        value = self._fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, "an integer")
        return value

    def boolean(self, name: str) -> bool:
        value = self._fields.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "a boolean")
        return value

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def binary(self, name: str) -> bytes:
        """Return the bytes of a base64 field."""
        try:
            return base64.b64decode(self.text(name), validate=True)
        except ValueError as error:
            raise self._wrong(name, "base64") from error

    def object(self, name: str) -> "JsonFields":
        path = self._path + name
        return JsonFields(_as_fields(self._fields.get(name), path), f"{path}.")

    def _wrong(self, name: str, what: str) -> ValueError:
        return ValueError(f"{self._path}{name} is not {what}")


def _as_fields(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value
