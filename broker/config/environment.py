"""Settings from environment variables, mapped as by the apache/kafka container image.

``KAFKA_NUM_PARTITIONS`` is ``num.partitions``: after the prefix, ``_`` stands for a dot, ``__`` for an underscore and
``___`` for a dash, in lower case. ``CLUSTER_ID`` has no prefix.
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
"""Variables that the image's start script and JVM read. Accepted without effect: this broker has no JVM."""

_UNDERSCORES = re.compile("_{1,3}")
_MEANING = {"_": ".", "__": "_", "___": "-"}


def settings_from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return settings by key. Names that the tables do not know are included; `load` warns about them."""
    return {
        setting_name(variable): value
        for variable, value in environ.items()
        if variable.startswith(_PREFIX) and variable not in IGNORED
    }


def setting_name(variable: str) -> str:
    """Convert ``KAFKA_ADVERTISED_LISTENERS`` to ``advertised.listeners``. Underscores are read in groups of up to
    three.
    """
    rest = variable.removeprefix(_PREFIX).lower()
    return _UNDERSCORES.sub(lambda run: _MEANING[run.group()], rest)
