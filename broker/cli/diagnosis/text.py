"""Findings as text for people. Pure."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from broker.cli.diagnosis.facts import ClusterFacts
from broker.cli.diagnosis.finding import ClusterFinding, Severity, counted

WIDTH: Final = 100
GUIDE: Final = "docs/troubleshooting.md"
_WORDS_BEFORE_OPTIONS: Final = 2


def addressed(command: str, options: Sequence[str]) -> str:
    """Return a command line with the options that reach the cluster, after `ottla COMMAND` as every command takes them.

    An empty command stays empty.
    """
    if not command:
        return ""
    words = command.split(" ")
    return " ".join([*words[:_WORDS_BEFORE_OPTIONS], *options, *words[_WORDS_BEFORE_OPTIONS:]])


def report_lines(findings: Sequence[ClusterFinding], facts: ClusterFacts | None) -> Iterator[str]:
    """Yield the report: a line of counts, then a paragraph per finding."""
    if not findings:
        topics, partitions = (0, 0) if facts is None else (len(facts.topics), len(facts.partitions))
        brokers = 0 if facts is None else len(facts.brokers)
        yield (
            f"Nothing is wrong with {counted(brokers, 'broker')}, {counted(topics, 'topic')} and "
            f"{counted(partitions, 'partition')}."
        )
        return
    counts = severity_counts(findings)
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    yield f"{counted(len(findings), 'finding')}: {shown}."
    for finding in findings:
        yield ""
        yield f"{finding.severity.value.upper()}  {finding.subject}"
        yield from _paragraph(finding.problem)
        yield from _paragraph(f"To do: {finding.remedy}")
        if finding.command:
            yield f"  Run: {finding.command}"
        yield f'  More: {GUIDE}, section "{finding.code}"'


def severity_counts(findings: Sequence[ClusterFinding]) -> dict[str, int]:
    """Return the number of findings by severity, zeros included."""
    counts = Counter(finding.severity for finding in findings)
    return {severity.value: counts[severity] for severity in Severity}


def _paragraph(text: str) -> Sequence[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
