"""Settings from environment variables, as the apache/kafka container image maps them.

``KAFKA_NUM_PARTITIONS`` is ``num.partitions``: after the prefix, ``_`` stands for a dot, ``__`` for an underscore and
``___`` for a dash, in lower case. ``CLUSTER_ID`` comes without prefix.
"""

import re
from collections.abc import Mapping

CLUSTER_ID = "CLUSTER_ID"
_PREFIX = "KAFKA_"

IGNORED: frozenset[str] = frozenset(
    {
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
"""What the image's start script and its JVM read. There is no JVM here: accepted, and without effect."""

_UNDERSCORES = re.compile("_{1,3}")
_MEANING = {"_": ".", "__": "_", "___": "-"}


def settings_from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings by key. A name the tables do not know is passed on: whoever loads warns about it."""
    return {
        setting_name(variable): value
        for variable, value in environ.items()
        if variable.startswith(_PREFIX) and variable not in IGNORED
    }


def setting_name(variable: str) -> str:
    """``KAFKA_ADVERTISED_LISTENERS`` -> ``advertised.listeners``. Runs of underscores are read three at a time."""
    rest = variable.removeprefix(_PREFIX).lower()
    return _UNDERSCORES.sub(lambda run: _MEANING[run.group()], rest)
