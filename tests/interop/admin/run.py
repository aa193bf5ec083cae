"""`python -m tests.interop.admin.run HOST:PORT`: make every admin call and print the outcomes as JSON.

The calls run in their own process, because the clients under test leave threads and sockets behind.
"""

import json
import sys
from importlib import import_module

from tests.interop.admin import calls

LIBRARIES = ("librdkafka", "kafka_python", "aiokafka")

REGISTERING = tuple(import_module(f"tests.interop.admin.calls_{library}") for library in LIBRARIES)
"""The modules whose import fills `calls.CALLS`, in the order in which the calls are made."""

if __name__ == "__main__":
    json.dump(calls.run_all(sys.argv[1]), sys.stdout)
