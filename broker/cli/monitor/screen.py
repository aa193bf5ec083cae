"""A frame as text for a terminal of a given size. Pure."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from broker.cli.diagnosis.finding import bytes_text
from broker.cli.monitor.figures import BrokerRow, Figures

NARROW: Final = 80
"""Width below which columns of less weight are left out."""
_ALWAYS_ROWS: Final = 4
_MARGIN: Final = 2
"""Lines of the terminal that stay empty."""
TEXTS: Final = frozenset({"broker", "state", "node", "role", "topic", "group", "type"})
"""Headings of columns that are aligned to the left."""
_GAP: Final = "  "
KEYS: Final = "q quit   s sort   p pause"


def frame(figures: Figures, width: int, height: int | None, *, note: str = "") -> RenderableType:
    """Return one frame: the header, then brokers, quorum, topics and groups, each cut to the lines that are left.

    `height` None shows everything.
    """
    header = _header(figures, note, width)
    parts: list[RenderableType] = [*header]
    left = None if height is None else height - len(header) - _MARGIN
    sections = [
        ("brokers", _brokers(figures, width), len(figures.brokers)),
        ("quorum", _quorum(figures), len(figures.quorum)),
        ("topics", _topics(figures), len(figures.topics)),
        ("groups", _groups(figures), len(figures.groups)),
    ]
    for position, (name, (headings, rows), count) in enumerate(sections):
        if not count:
            continue
        room = count if left is None else min(count, max(_ALWAYS_ROWS, (left - 2) // (len(sections) - position)))
        if left is not None:
            if left < 3:
                break
            room = min(room, left - 2)
            left -= room + 2
        shown = rows[:room]
        more = f"  ({count - room} more)" if count > room else ""
        parts.append(Text(f"{name.upper()}{more}", style="bold"))
        parts.append(_table(headings, shown))
    return Group(*parts)


def text_of(figures: Figures, width: int, note: str = "") -> str:
    """Return the frame as plain text, for pipes."""
    out = io.StringIO()
    console = Console(file=out, width=width, no_color=True, force_terminal=False)
    console.print(frame(figures, width, None, note=note))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _header(figures: Figures, note: str, width: int) -> list[Text]:
    at = datetime.fromtimestamp(figures.time_ms / 1000, UTC)
    leader = "none" if figures.leader_id is None else str(figures.leader_id)
    title = ("ottla top", f"{at:%H:%M:%S} UTC", f"cluster {figures.cluster_id}", f"controller {leader}", note)
    counts = [
        Text(f"{figures.topic_count:,} topics"),
        Text(f"{figures.partition_count:,} partitions"),
        _alarm(figures.offline, "offline", "bold red"),
        _alarm(figures.under_min_isr, "under min ISR", "bold red"),
        _alarm(figures.under_replicated, "under-replicated", "yellow"),
    ]
    lines = [*_flow([Text(part) for part in title if part], width), *_flow(counts, width)]
    if figures.remote_lag_bytes is not None:
        size, segments = bytes_text(figures.remote_lag_bytes), figures.remote_lag_segments
        lag = Text(f"remote storage: {size} in {segments} segments to copy")
        lines += _flow([lag, _alarm(figures.remote_errors or 0, "errors since start", "yellow")], width)
    return lines


def _flow(parts: Sequence[Text], width: int) -> list[Text]:
    """Join parts by two spaces into lines of at most `width` cells. Breaks lines between parts only."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + len(_GAP) + part.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], _GAP, part)
        else:
            lines.append(part)
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines


def _alarm(count: int, what: str, style: str) -> Text:
    return Text(f"{count:,} {what}", style if count else "")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in TEXTS else "right", no_wrap=True, overflow="ellipsis")
    for row in rows:
        style = "red" if {"no answer", "disk offline"} & set(row) else "yellow" if "fenced" in row else None
        table.add_row(*row, style=style)
    return table


def _brokers(figures: Figures, width: int) -> tuple[Sequence[str], list[Sequence[str]]]:
    headings = ["broker", "state", "in/s", "out/s", "req/s", "loop lag", "disk"]
    wide = width >= NARROW
    if wide:
        headings += ["cpu", "memory", "conns", "leaders"]
    return headings, [_broker_cells(row, wide=wide) for row in figures.brokers]


def _broker_cells(row: BrokerRow, *, wide: bool) -> Sequence[str]:
    lag, disk = row.loop_lag_ms, row.disk_used
    cells = [
        str(row.id),
        row.state,
        _size(row.bytes_in),
        _size(row.bytes_out),
        _number(row.requests),
        "-" if lag is None else f"{lag:.1f} ms",
        "-" if disk is None else f"{disk:.0%}",
    ]
    if wide:
        cells += [
            "-" if row.cpu is None else f"{row.cpu:.0%}",
            "-" if row.memory_bytes is None else bytes_text(row.memory_bytes),
            _number(row.connections),
            str(row.leaders),
        ]
    return cells


def _quorum(figures: Figures) -> tuple[Sequence[str], list[Sequence[str]]]:
    return ["node", "role", "lag", "last fetch"], [
        [str(row.id), row.role, f"{row.lag:,}", "-" if row.silent_ms is None else f"{row.silent_ms / 1000:.1f} s"]
        for row in figures.quorum
    ]


def _topics(figures: Figures) -> tuple[Sequence[str], list[Sequence[str]]]:
    return ["topic", "in/s", "out/s", "messages/s"], [
        [row.name, _size(row.bytes_in), _size(row.bytes_out), _number(row.messages_in)] for row in figures.topics
    ]


def _groups(figures: Figures) -> tuple[Sequence[str], list[Sequence[str]]]:
    return ["group", "type", "state", "lag"], [
        [row.id, row.type, row.state, "-" if row.lag is None else f"{row.lag:,}"] for row in figures.groups
    ]


def _size(value: float | None) -> str:
    return "-" if value is None else bytes_text(value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
