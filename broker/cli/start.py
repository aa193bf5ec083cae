"""`ottla start`: Kafka's kafka-server-start. Loads the configuration, logs its warnings and runs the node.

Module-level imports are few, for a fast start: everything that only a node needs comes with `broker.app`.
"""

import gc
import os
from collections.abc import Callable

import click

from broker.cli.node.parent_watchdog import stop_when_stdin_ends
from broker.cli.shared.failure import CommandFailed
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.exposure import exposure_warnings, override_warnings
from broker.config.load import load_config, read_properties
from broker.logs import EventLog, LogFormat, configure_logging
from storage.errors import StorageError

_LOG = EventLog("ottla.start")


@click.command("start", short_help="Run a node.")
@click.argument("config_file", required=False, metavar="[CONFIG.properties]")
@click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting that overrides file and environment."
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log.",
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]),
    default="INFO",
    show_default=True,
    help="Lowest level that is logged.",
)
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run N brokers on this machine, a process each, with ids, ports, directories and rack from one configuration.",
)
@click.option("--log-node-id", is_flag=True, hidden=True)
@click.option("--overrides-file", hidden=True)
@click.option("--until-stdin-ends", is_flag=True, hidden=True)
def start(
    config_file: str | None,
    overrides: tuple[str, ...],
    log_format: LogFormat,
    log_level: str,
    brokers: int | None,
    log_node_id: bool,
    overrides_file: str | None,
    until_stdin_ends: bool,
) -> int:
    """Run a node until SIGINT or SIGTERM. Without a configuration: a broker and controller on 127.0.0.1:9092, with its
    data in ./data.

    With --brokers, SIGHUP restarts the brokers one after another.
    """
    configure_logging(log_format, log_level)
    if brokers is not None:
        from broker.cli.node.machine import MachineOptions, run_machine

        run_machine(MachineOptions(config_file, overrides, brokers, log_format, log_level))
        return 0
    if until_stdin_ends:
        stop_when_stdin_ends()
    try:
        hidden = {} if overrides_file is None else read_properties(overrides_file)
        given = [*overrides, *(f"{name}={value}" for name, value in hidden.items())]
        config, warnings = load_config(config_file, given, os.environ)
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error
    if log_node_id:
        configure_logging(log_format, log_level, constant={"node_id": config.node_id})
    for warning in [*warnings, *override_warnings(overrides), *exposure_warnings(config)]:
        _LOG.warning(warning)
    run_node = _import_node()
    try:
        run_node(config)
    except KeyboardInterrupt:
        return 0
    except BaseExceptionGroup as group:
        raise _failure(_first_leaf(group)) from group
    except Exception as error:
        raise _failure(error) from error
    return 0


def _import_node() -> Callable[[BrokerConfig], None]:
    """Import the node. Freeze the imported objects: they are never freed, so the garbage collector can skip them."""
    gc.disable()
    import uvloop

    from broker.app import run
    from broker.runtime.loop.collector_pauses import NODE_THRESHOLDS

    gc.freeze()
    if gc.get_threshold()[0]:  # 0: collections are disabled by configuration
        gc.set_threshold(*NODE_THRESHOLDS)
    gc.enable()
    return lambda config: uvloop.run(run(config))


def _first_leaf(error: BaseException) -> BaseException:
    """Return the first exception inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _failure(error: BaseException) -> CommandFailed:
    """Return the message of an expected failure; log a bug with its traceback."""
    from broker.net.listening import ListenError
    from broker.runtime.quorum.metadata_recovery import UnusableMetadataLog
    from broker.runtime.quorum.state_file import InvalidQuorumState

    if isinstance(error, ConfigError):
        return CommandFailed(error.sentence)
    if isinstance(error, StorageError | ListenError | UnusableMetadataLog | InvalidQuorumState):
        return CommandFailed(f"{str(error).rstrip('.')}.")
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        return CommandFailed(f"{where}{error.strerror or error}.")
    _LOG.error("The node failed", error)
    return CommandFailed(f"The node failed: {type(error).__name__}: {error}")
