"""Plots of a report as SVG: how many times better than Apache Kafka each figure is."""

import io
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, StrMethodFormatter

from tests.benchmarks.report.rows import Row

GREY, BETTER, WORSE = "#808080", "#2a7f62", "#c0504d"
ROW_INCHES, WIDTH_INCHES, FRAME_INCHES = 0.27, 8.5, 0.9
LABEL_LENGTH = 62
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def advantages(title: str, rows: Sequence[Row]) -> str:
    """Return bars on a logarithmic scale, one per row with figures of both sides; the line is Apache Kafka.

    The text is grey, so that light and dark pages can show it. The same rows give the same bytes.
    """
    shown = [(row, row.advantage) for row in rows if row.advantage]
    names = [row.name if len(row.name) <= LABEL_LENGTH else f"{row.name[: LABEL_LENGTH - 1]}…" for row, _ in shown]
    values = [value for _, value in shown if value]
    with mpl.rc_context({"svg.hashsalt": title, "svg.fonttype": "none", "font.size": 8.5, "text.color": GREY}):
        figure = Figure(figsize=(WIDTH_INCHES, FRAME_INCHES + ROW_INCHES * len(shown)), layout="constrained")
        axes = figure.subplots()
        places = range(len(shown), 0, -1)
        widths = [value - 1 for value in values]
        axes.barh(places, widths, left=1, height=0.62, color=[BETTER if value >= 1 else WORSE for value in values])
        for place, value in zip(places, values, strict=True):
            side = "left" if value >= 1 else "right"
            axes.annotate(
                f"{value:.2f}",
                (value, place),
                (3 if value >= 1 else -3, 0),
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=8,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(TICKS))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(list(places), names)
        axes.set_title(title, loc="left")
        axes.set_xlabel("times better than Apache Kafka")
        axes.axvline(1, color=GREY, linewidth=1)
        axes.margins(x=0.12)
        axes.set_xlim(min(0.8, *values) / 1.3, max(1.25, *values) * 1.3)
        axes.tick_params(colors=GREY)
        axes.xaxis.label.set_color(GREY)
        for spine in axes.spines.values():
            spine.set_visible(False)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"
