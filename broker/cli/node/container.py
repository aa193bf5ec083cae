"""What the container image runs: `ottla start`, with the environment read as apache/kafka's image reads it. Arguments
NAME=VALUE come first and beat the environment; what follows them are options of `ottla start`.

Settings mounted at /mnt/shared/config/server.properties come first, `KAFKA_*` variables beat them, and what the image
comes with counts only where there is neither. A node formats itself for the cluster `CLUSTER_ID`.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.cli.shared.failure import CommandFailed
from broker.config.environment import CLUSTER_ID, settings_from_environment
from broker.config.errors import ConfigError
from broker.config.load import read_properties

MOUNTED: Final = Path("/mnt/shared/config/server.properties")
SHIPPED: Final = Path("/etc/kafka/docker/server.properties")
DATA: Final = "/var/lib/kafka/data"

_DEFAULT_CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"  # the image's, so that its examples run unchanged
_ADVERTISED: Final = "KAFKA_ADVERTISED_LISTENERS"
_LISTENERS: Final = "KAFKA_LISTENERS"
_ROLES: Final = "KAFKA_PROCESS_ROLES"
_LOG_DIRS: Final = "KAFKA_LOG_DIRS"
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_HOST: Final = re.compile(r"://(\[[^]]*\]|[^:,]*):")


class ContainerStart(NamedTuple):
    """`environment` is for the node; `config_file` is None where there is none to read."""

    environment: dict[str, str]
    config_file: Path | None


def prepare(environ: Mapping[str, str], mounted: Path = MOUNTED, shipped: Path = SHIPPED) -> ContainerStart:
    """The start of a node from a container's environment. Raises ConfigError for a file that cannot be read, and
    CommandFailed for listeners that a controller advertises.
    """
    environment = {name: value for name, value in environ.items() if name not in (_ADVERTISED, _LISTENERS) or value}
    environment[CLUSTER_ID] = environ.get(CLUSTER_ID) or _DEFAULT_CLUSTER_ID
    in_file = read_properties(str(mounted)) if mounted.is_file() else {}
    config_file = mounted if in_file else None
    if not in_file and not settings_from_environment(environment):
        config_file, in_file = shipped, read_properties(str(shipped))
    _derive_listeners(environment)
    if not {"log.dirs", "log.dir"} & (in_file.keys() | settings_from_environment(environment).keys()):
        environment[_LOG_DIRS] = DATA
    return ContainerStart(environment, config_file)


def with_arguments(environ: Mapping[str, str], arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The environment with what the arguments set in it, and the rest of them."""
    count = next((at for at, each in enumerate(arguments) if not _ASSIGNMENT.match(each)), len(arguments))
    set_here = (each.partition("=") for each in arguments[:count])
    return {**environ, **{name: value for name, _, value in set_here}}, list(arguments[count:])


def _derive_listeners(environment: dict[str, str]) -> None:
    """Listeners default to what is advertised, on all addresses."""
    advertised = environment.get(_ADVERTISED)
    if advertised is None:
        return
    if environment.get(_ROLES) == "controller":
        raise CommandFailed(f"{_ADVERTISED} is set, but a node that is only a controller has none to advertise.")
    environment.setdefault(_LISTENERS, _HOST.sub("://0.0.0.0:", advertised))


def main() -> int:
    """Runs the node in this process, so that signals reach it."""
    from broker.cli.main import run

    environ, options = with_arguments(os.environ, sys.argv[1:])
    try:
        start = prepare(environ)
    except (ConfigError, CommandFailed) as error:
        sentence = error.sentence if isinstance(error, ConfigError) else error.format_message()
        print(f"ottla: {sentence}", file=sys.stderr)
        return 1
    os.environ.clear()
    os.environ.update(start.environment)
    return run(["start", *([] if start.config_file is None else [str(start.config_file)]), *options])


if __name__ == "__main__":
    sys.exit(main())
