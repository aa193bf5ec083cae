"""The import of aiokafka's compiled record code, as a module: Python imports a module once, however many threads ask.

Threads open their first records at the same time (the loop reads its metadata log while others recover partitions), and
the import changes `sys.modules` in ways that two of them must not do at once.
"""

import importlib
import sys
from types import ModuleType

from protocol.records.compiled import RecordCode, package_directory


def _load() -> RecordCode:
    """Unless someone has imported aiokafka already, an empty package stands in for it during the import, so that its
    `__init__` does not run; nothing of that remains in `sys.modules`, and a later real import starts afresh.
    """
    if "aiokafka" in sys.modules:
        return _import()
    stand_in = ModuleType("aiokafka")
    stand_in.__path__ = [package_directory("aiokafka")]
    sys.modules["aiokafka"] = stand_in
    try:
        return _import()
    finally:
        for name in list(sys.modules):  # in one step: other threads may be importing something else
            if name.partition(".")[0] == "aiokafka":
                del sys.modules[name]


def _import() -> RecordCode:
    records = importlib.import_module("aiokafka.record._crecords.default_records")
    errors = importlib.import_module("aiokafka.errors")
    return RecordCode(records.DefaultRecordBatch, records.DefaultRecordBatchBuilder, errors.CorruptRecordException)


RECORD_CODE = _load()
