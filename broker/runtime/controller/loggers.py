"""The levels of this process's loggers, read and changed at run time (config resource BROKER_LOGGER)."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from broker.metadata.controller.configs import AlterOperation, ConfigOperation
from protocol.errors import ErrorCode, KafkaError

ROOT: Final = "root"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}


class ProcessLoggers:
    """Kafka's level names for Python's loggers. A logger without a level inherits its parent's."""

    def levels(self) -> Mapping[str, str]:
        """Return the effective level of every logger, including the root logger."""
        known = logging.root.manager.loggerDict
        names = sorted(name for name, logger in known.items() if isinstance(logger, logging.Logger))
        levels = {name: _level_name(logging.getLogger(name).getEffectiveLevel()) for name in names}
        return {ROOT: _level_name(logging.root.level), **levels}

    def alter(self, operations: Sequence[ConfigOperation], *, validate_only: bool) -> None:
        """Set levels; DELETE makes a logger inherit again. Applies all operations or none. Raises KafkaError."""
        known = self.levels()
        for each in operations:
            _check(each, known)
        if validate_only:
            return
        for name, operation, value in operations:
            level = _LEVELS[value or ""] if operation == AlterOperation.SET else logging.NOTSET
            logging.getLogger(None if name == ROOT else name).setLevel(level)


def _check(operation: ConfigOperation, known: Mapping[str, str]) -> None:
    name, number, value = operation
    if number not in (AlterOperation.SET, AlterOperation.DELETE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a logger level supports only SET and DELETE")
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f'logger "{name}" does not exist')
    if number == AlterOperation.DELETE and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be deleted")
    if number == AlterOperation.SET and value not in _LEVELS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f'"{value}" is not a log level; use one of {", ".join(_LEVELS)}')


def _level_name(level: int) -> str:
    """Return Kafka's name of the nearest level at or below `level`."""
    fitting = [name for name, number in _LEVELS.items() if number <= level]
    return fitting[0] if fitting else "TRACE"
