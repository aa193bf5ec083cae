"""The import of aiokafka's compiled record code as a module, which Python imports once for all threads.

Threads read their first records at the same time (the loop reads the metadata log while others recover partitions), and
the import changes `sys.modules` in ways that two threads must not do at once.
"""

import importlib
import sys
from types import ModuleType

from protocol.records.compiled import RecordCode, package_directory


def _load() -> RecordCode:
    """Import the extension modules. Unless aiokafka is already imported, empty packages replace it and its package
    `record` during the import, so that their `__init__` do not run; `sys.modules` is restored, and a later import is a
    normal one.
    """
    if "aiokafka" in sys.modules:
        return _import()
    directory = package_directory("aiokafka")
    _stand_in("aiokafka", directory)
    _stand_in("aiokafka.record", f"{directory}/record")
    try:
        return _import()
    finally:
        for name in list(sys.modules):  # list() in one step: other threads may be importing
            if name.partition(".")[0] == "aiokafka":
                del sys.modules[name]


def _stand_in(package: str, directory: str) -> None:
    module = ModuleType(package)
    module.__path__ = [directory]
    sys.modules[package] = module


def _import() -> RecordCode:
    records = importlib.import_module("aiokafka.record._crecords.default_records")
    errors = importlib.import_module("aiokafka.errors")
    return RecordCode(records.DefaultRecordBatch, records.DefaultRecordBatchBuilder, errors.CorruptRecordException)


RECORD_CODE = _load()
