"""The container image's entry point: `ottla start` with the environment variables of the apache/kafka image.

Leading arguments NAME=VALUE override the environment; the remaining arguments are options of `ottla start`. Settings
come from /mnt/shared/config/server.properties, overridden by `KAFKA_*` variables; the image's default file is used only
if both are empty. The node formats itself for the cluster `CLUSTER_ID`.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.cli.node.image_variables import with_node_id_of_host, with_secret_files, without_own_zookeeper
from broker.cli.shared.failure import CommandFailed
from broker.config.environment import CLUSTER_ID, settings_from_environment
from broker.config.errors import ConfigError
from broker.config.load import read_properties

MOUNTED: Final = Path("/mnt/shared/config/server.properties")
SHIPPED: Final = Path("/etc/kafka/docker/server.properties")
DATA: Final = "/var/lib/kafka/data"

_DEFAULT_CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"  # the default of the apache/kafka image
_ADVERTISED: Final = "KAFKA_ADVERTISED_LISTENERS"
_LISTENERS: Final = "KAFKA_LISTENERS"
_ROLES: Final = "KAFKA_PROCESS_ROLES"
_LOG_DIRS: Final = "KAFKA_LOG_DIRS"
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_HOST: Final = re.compile(r"://(\[[^]]*\]|[^:,]*):")


class ContainerStart(NamedTuple):
    """Arguments of a node's start. `environment` is the node's; `config_file` is None if there is no file to read."""

    environment: dict[str, str]
    config_file: Path | None


def prepare(environ: Mapping[str, str], mounted: Path = MOUNTED, shipped: Path = SHIPPED) -> ContainerStart:
    """Derive a node's start from a container's environment.

    Raises ConfigError for an unreadable file, and CommandFailed for advertised listeners on a controller and for
    variables of `image_variables` that cannot be used.
    """
    environment = {name: value for name, value in environ.items() if name not in (_ADVERTISED, _LISTENERS) or value}
    environment = without_own_zookeeper(with_node_id_of_host(environment))
    environment = with_secret_files(environment, lambda path: Path(path).read_text())
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
    """Return the environment, overridden by the leading NAME=VALUE arguments, and the remaining arguments."""
    count = next((at for at, each in enumerate(arguments) if not _ASSIGNMENT.match(each)), len(arguments))
    set_here = (each.partition("=") for each in arguments[:count])
    return {**environ, **{name: value for name, _, value in set_here}}, list(arguments[count:])


def _derive_listeners(environment: dict[str, str]) -> None:
    """Set the default of the listeners: the advertised listeners, bound to all addresses."""
    advertised = environment.get(_ADVERTISED)
    if advertised is None:
        return
    if environment.get(_ROLES) == "controller":
        raise CommandFailed(f"{_ADVERTISED} is set, but a node with only the controller role advertises no listeners.")
    environment.setdefault(_LISTENERS, _HOST.sub("://0.0.0.0:", advertised))


def main() -> int:
    """Run the node in this process, so that signals reach it."""
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
