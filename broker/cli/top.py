"""`ottla top`: the cluster live in a terminal. Kafka has no counterpart."""

import shutil
import sys
import time
from typing import Final

import click

from broker.cli.diagnosis.cluster_survey import ClusterSurvey
from broker.cli.diagnosis.facts import ClusterFacts
from broker.cli.doctor import PATIENT_TIMES
from broker.cli.monitor.figures import ORDERS, Figures, figures_of
from broker.cli.monitor.lags import group_lags
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import client_options, json_option
from broker.cli.shared.output import print_json
from broker.cli.shared.session import read_properties, session
from broker.client import Client

TOPICS_MAX: Final = 200
PIPE_WIDTH: Final = 100
ONCE_SAMPLE_S: Final = 1.0


@click.command("top", short_help="Show the cluster live in a terminal.")
@client_options
@click.option(
    "--interval", type=click.FloatRange(0.5, 3600), default=2.0, show_default=True, help="Seconds between two frames."
)
@click.option("--sort", type=click.Choice(ORDERS), default="in", show_default=True, help="The first order.")
@click.option("--once", is_flag=True, help="Print one frame as text, with rates over a second.")
@json_option
def top(
    bootstrap_server: str, command_config: str | None, interval: float, sort: str, once: bool, as_json: bool
) -> None:
    """Show the cluster live in a terminal: load, quorum, topics, groups. Keys: q quits, s sorts, p pauses."""
    if as_json and not once:
        raise click.UsageError("--json requires --once.")
    given = read_properties(command_config)
    overrides = {name: value for name, value in PATIENT_TIMES.items() if name not in given}
    with session(bootstrap_server, command_config, overrides) as client:
        monitor = ClusterMonitor(client)
        try:
            if once:
                monitor.figures(sort)
                time.sleep(ONCE_SAMPLE_S)
                _print(monitor.figures(sort), as_json=as_json)
            else:
                _show(monitor, interval, sort)
        finally:
            monitor.close()


class ClusterMonitor:
    """Samples a cluster, and computes the figures since the former sample."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._survey = ClusterSurvey(client, detailed=False, topics_max=TOPICS_MAX)
        self._before: ClusterFacts | None = None

    def close(self) -> None:
        """Close the connections to all nodes."""
        self._survey.close()

    def figures(self, order: str) -> Figures:
        """Return the figures of a new sample. Raises ConnectionLost if no broker answers."""
        now = self._survey.take()
        lags = group_lags(self._client, now.groups)
        figures = figures_of(now, self._before, lags, order)
        self._before = now
        return figures


def _print(figures: Figures, *, as_json: bool) -> None:
    # Local import: rich takes 50 ms, which JSON does not need.
    from broker.cli.monitor.screen import text_of

    if as_json:
        print_json(figures.document())
    else:
        click.echo(text_of(figures, shutil.get_terminal_size((PIPE_WIDTH, 0)).columns))


def _show(monitor: ClusterMonitor, interval: float, sort: str) -> None:
    if not sys.stdout.isatty() or not sys.stdin.isatty():
        raise CommandFailed("ottla top draws on a terminal; use --once to print one frame to a pipe.")
    from broker.cli.monitor.terminal import LiveView  # local import: see `_print`

    LiveView(monitor.figures, interval, sort).run()
