"""The format of log lines: one line per event, `key=value` after the message, or one JSON object per line.

`EventLog` logs an event with its facts separate from the message. Lines of the standard `logging` module, from the
broker and from libraries, have the same shape. A line never contains a raw line break, whatever a client id contains,
and an exception appears on its event's own line.
"""

import json
import logging
import sys
import time
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Literal, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]
ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]

_FIELDS = "fields"  # attribute of a LogRecord with the facts of an event
_NO_FIELDS: Mapping[str, object] = {}
_STACK_DEPTH = 6  # innermost frames in the text format; JSON has all of them


class EventLog:
    """A logger for events: a constant message, and facts that vary."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        """Log an event for fault analysis."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Log an event for operators."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log an unexpected event that was handled."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, error: BaseException | None = None, **fields: object) -> None:
        """Log a failure; `error` adds its type and place."""
        self._write(logging.ERROR, event, fields, error)

    def _write(self, level: int, event: str, fields: Mapping[str, object], error: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            extra = {_FIELDS: fields}
            self._logger.log(level, "%s", event, extra=extra, exc_info=error, stacklevel=3)


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00,000 INFO broker.net a sentence key=value key="two words"`; `constant` fields come last."""

    def __init__(self, constant: Mapping[str, object] = _NO_FIELDS) -> None:
        super().__init__()
        self._constant = constant
        self._stamp = (-1, "")  # the last second and its text, since lines come in bursts

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, without a line break at its end."""
        stamp = self._second(int(record.created))
        head = f"{stamp},{int(record.msecs):03d} {record.levelname} {record.name} {_one_line(record.getMessage())}"
        fields = dict(fields_of(record))
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fields["error"] = "".join(traceback.format_exception_only(error)).strip()
            fields["at"] = _places(error)
        fields |= self._constant
        return " ".join([head, *(f"{key}={_text_value(value)}" for key, value in fields.items())])

    def _second(self, second: int) -> str:
        known, text = self._stamp
        if known != second:
            text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
            self._stamp = (second, text)
        return text


class JsonFormatter(logging.Formatter):
    """One object: `ts` (ISO 8601, UTC), `level`, `logger`, `event`, `thread`, the event's fields, the `constant` ones,
    and `traceback`."""

    def __init__(self, constant: Mapping[str, object] = _NO_FIELDS) -> None:
        super().__init__()
        self._constant = constant

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, without a line break at its end. A field never replaces a standard one."""
        entry: dict[str, object] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            "thread": record.threadName,
        }
        if record.exc_info and record.exc_info[1] is not None:
            entry["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps({**fields_of(record), **self._constant, **entry}, default=str)


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the facts of an event; empty for a line of the standard `logging` module."""
    fields = getattr(record, _FIELDS, None)
    return fields if isinstance(fields, dict) else {}


def configure_logging(
    log_format: LogFormat = "text",
    level: str = "INFO",
    stream: IO[str] | None = None,
    *,
    constant: Mapping[str, object] = _NO_FIELDS,
) -> None:
    """Send every logger of the process to `stream` (standard output), in place of the previous configuration.

    Every line has the `constant` fields: what tells the processes apart whose lines go to one place.
    """
    # Facts about the process that no line has; each costs a look-up a line.
    logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(sys.stdout if stream is None else stream)
    handler.setFormatter(JsonFormatter(constant) if log_format == "json" else TextFormatter(constant))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)


def _text_value(value: object) -> str:
    """Return `value` as it is where that is unambiguous, else as a JSON string."""
    text = str(value)
    if text and not any(character in ' "=\\' or not character.isprintable() for character in text):
        return text
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else json.dumps(text)


def _one_line(message: str) -> str:
    return message if message.isprintable() else json.dumps(message)[1:-1]


def _places(error: BaseException) -> str:
    """Return the frames of an exception, innermost first: `file.py:12 function < file.py:34 caller`."""
    frames = traceback.extract_tb(error.__traceback__)[-_STACK_DEPTH:]
    return " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in reversed(frames))
