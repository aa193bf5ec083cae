"""`ottla doctor`: finds what is wrong with a cluster, and says what to do. Kafka has no counterpart."""

import time
from collections.abc import Sequence
from typing import Final

import click

from broker.cli.diagnosis.cluster_survey import ClusterSurvey
from broker.cli.diagnosis.examination import examine
from broker.cli.diagnosis.facts import REBALANCING, ClusterFacts
from broker.cli.diagnosis.finding import ClusterFinding, Severity
from broker.cli.diagnosis.text import addressed, report_lines, severity_counts
from broker.cli.diagnosis.work_rules import REBALANCE_MS_MAX
from broker.cli.shared.options import client_options, json_option
from broker.cli.shared.output import print_json
from broker.cli.shared.session import read_properties, session
from broker.client import AuthenticationRefused, ConnectionLost

SAMPLE_S: Final = 2.0
PATIENT_TIMES: Final = {
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "10000",
    "socket.connection.setup.timeout.ms": "3000",
}
"""Time limits in place of the client's own: a node that hangs is a finding, and must not hold up the report."""


@click.command("doctor", short_help="Find what is wrong with a cluster, and what to do.")
@client_options
@click.option(
    "--sample-seconds",
    type=click.FloatRange(min=0, max=600),
    default=SAMPLE_S,
    show_default=True,
    help="Time between the two samples from which rates and growth are computed; 0 takes one sample.",
)
@json_option
def doctor(bootstrap_server: str, command_config: str | None, sample_seconds: float, as_json: bool) -> int:
    """Find what is wrong with a cluster, and what to do.

    Exit code: 0 if nothing is wrong, 1 with findings. Severities: critical, data or service is unavailable or lost, or
    about to be; warning, the next failure does harm; info, nothing is at risk.
    """
    given = read_properties(command_config)
    overrides = {name: value for name, value in PATIENT_TIMES.items() if name not in given}
    facts: ClusterFacts | None = None
    with session(bootstrap_server, command_config, overrides) as client:
        survey = ClusterSurvey(client)
        try:
            before, facts = _sample(survey, sample_seconds)
            findings = examine(facts, before)
        except AuthenticationRefused:
            raise
        except ConnectionLost as error:
            findings = [_no_broker(bootstrap_server, str(error))]
        finally:
            survey.close()
    options = ["--bootstrap-server", bootstrap_server]
    options += [] if command_config is None else ["--command-config", command_config]
    findings = [each._replace(command=addressed(each.command, options)) for each in findings]
    _print(findings, facts, as_json=as_json)
    return 1 if findings else 0


def _sample(survey: ClusterSurvey, sample_seconds: float) -> tuple[ClusterFacts | None, ClusterFacts]:
    """Return two samples. Groups within a rebalance in both make the second one wait until it can judge them."""
    if sample_seconds == 0:
        return None, survey.take(deep=True)
    before = survey.take()
    time.sleep(sample_seconds)
    facts = survey.take(deep=True)
    while _is_rebalancing(before, facts) and facts.time_ms - before.time_ms < REBALANCE_MS_MAX:
        time.sleep(min(SAMPLE_S, (REBALANCE_MS_MAX - facts.time_ms + before.time_ms) / 1000 + 0.1))
        facts = survey.take(deep=True)
    return before, facts


def _is_rebalancing(before: ClusterFacts, now: ClusterFacts) -> bool:
    earlier = {group.id for group in before.groups if group.state in REBALANCING}
    return any(group.state in REBALANCING and group.id in earlier for group in now.groups)


def _no_broker(bootstrap_server: str, reason: str) -> ClusterFinding:
    return ClusterFinding(
        Severity.CRITICAL,
        "no-broker-answers",
        bootstrap_server,
        f"None of the bootstrap servers answers: {reason}",
        "Start the brokers, or correct --bootstrap-server. A broker that is starting answers once it is unfenced; "
        "/health/ready of its HTTP listener says what it waits for.",
        names=[bootstrap_server],
    )


def _print(findings: Sequence[ClusterFinding], facts: ClusterFacts | None, *, as_json: bool) -> None:
    if not as_json:
        click.echo("\n".join(report_lines(findings, facts)))
        return
    print_json(
        {
            "clusterId": None if facts is None else facts.cluster_id,
            "timeMs": None if facts is None else facts.time_ms,
            "counts": severity_counts(findings),
            "findings": [each.document() for each in findings],
        }
    )
