"""The import of aiokafka's compiled record code as a module, which Python imports once for all threads.

Threads read their first records at the same time (the loop reads the metadata log while others recover partitions), and
the import changes `sys.modules` in ways that two threads must not do at once.
"""

import importlib
import sys
from types import ModuleType

from protocol.records.compiled import RecordCode, package_directory


def _load() -> RecordCode:
    """Import the extension modules. Unless aiokafka is already imported, an empty package replaces it during the
    import, so that its `__init__` does not run; `sys.modules` is restored, and a later import is a normal one.
    """
    if "aiokafka" in sys.modules:
        return _import()
    stand_in = ModuleType("aiokafka")
    stand_in.__path__ = [package_directory("aiokafka")]
    sys.modules["aiokafka"] = stand_in
    try:
        return _import()
    finally:
        for name in list(sys.modules):  # list() in one step: other threads may be importing
            if name.partition(".")[0] == "aiokafka":
                del sys.modules[name]


def _import() -> RecordCode:
    records = importlib.import_module("aiokafka.record._crecords.default_records")
    errors = importlib.import_module("aiokafka.errors")
    return RecordCode(records.DefaultRecordBatch, records.DefaultRecordBatchBuilder, errors.CorruptRecordException)


RECORD_CODE = _load()
