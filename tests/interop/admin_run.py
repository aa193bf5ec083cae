"""`python -m tests.interop.admin_run HOST:PORT`: make every admin call there and print the outcomes as JSON.

A process of its own, because the clients under test leave threads and sockets behind.
"""

import json
import sys
from importlib import import_module

from tests.interop import admin_calls

REGISTERING = tuple(import_module(f"tests.interop.calls_{name}") for name in ("librdkafka", "kafka_python", "aiokafka"))
"""Importing them fills `admin_calls.CALLS`, in the order in which the calls are made."""

if __name__ == "__main__":
    json.dump(admin_calls.run_all(sys.argv[1]), sys.stdout)
