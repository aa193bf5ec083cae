"""The messages of OpenTelemetry's exporters, which have the reasons of failures."""

import logging
from typing import Final

_LIBRARY: Final = "opentelemetry"
NO_REASON: Final = "the exporter gave no reason"


class ExporterMessages(logging.Handler):
    """Keeps the last message of `exporter`, in place of a line in the node's log: the node writes its own.

    Each exporter has its own logger, so that two exporters do not take each other's messages.
    """

    def __init__(self, exporter: object) -> None:
        super().__init__(logging.WARNING)
        self.text = NO_REASON
        library = logging.getLogger(_LIBRARY)
        library.handlers, library.propagate = [logging.NullHandler()], False
        logging.getLogger(type(exporter).__module__).handlers = [self]

    def begin(self) -> None:
        """Forget the message of an earlier export."""
        self.text = NO_REASON

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self.text = record.getMessage()
