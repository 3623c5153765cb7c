"""The table, the JSON and the plot of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Figure

REACHED = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}


def print_table(figures: list[Figure], console: Console) -> None:
    """One row per figure: ours, the peer's, the ratio, the goal, and whether it is reached."""
    table = Table(title="logwright benchmarks (medians; a ratio above 1 means that ours is better)")
    for name in ("subject", "what", "ours", "peer", "", "ratio", "goal", "reached"):
        table.add_column(name, justify="right" if name in ("ours", "peer", "ratio", "goal") else "left")
    last = ""
    for figure in figures:
        if last and figure.subject != last:
            table.add_section()
        table.add_row(
            "" if figure.subject == last else figure.subject,
            figure.what,
            f"{_number(figure.ours)} {figure.unit}",
            f"{_number(figure.peer)} {figure.unit}",
            figure.peer_name,
            f"{figure.ratio:.2f}",
            "" if figure.goal is None else f"≥ {figure.goal:g}",
            REACHED[figure.reached],
        )
        last = figure.subject
    console.print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write_json(figures: list[Figure], machine: dict[str, Any], path: Path) -> None:
    """All figures, with the single rounds."""
    whole = {"machine": machine, "figures": [figure.as_json() for figure in figures]}
    path.write_text(json.dumps(whole, indent=2) + "\n")


def plot(figures: list[Figure], machine: dict[str, Any], path: Path) -> bool:
    """Plot a bar for each figure with a goal: how far it exceeds the goal. False if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [figure for figure in figures if figure.goal is not None][::-1]
    axes_height = 0.34 * len(shown) + 1.4
    drawing, axes = pyplot.subplots(figsize=(11, axes_height), layout="constrained")
    for row, figure in enumerate(shown):
        reach = figure.ratio / (figure.goal or 1)
        axes.barh(row, reach - 1, left=1, height=0.62, color="#2a7f62" if reach >= 1 else "#b5443c")
        label = f"{_number(figure.ours)} {figure.unit}, {figure.ratio:.2f} × {figure.peer_name}"
        axes.annotate(label, (max(reach, 1), row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=7.5)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(shown)), [f"{figure.subject}: {figure.what}" for figure in shown], fontsize=8)
    axes.set_xlabel("reached, as a multiple of the goal (right of the line: better than the goal)", fontsize=8)
    left, right = axes.get_xlim()
    axes.set_xlim(min(left, 0.5), right * 6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.tick_params(axis="x", labelsize=8, which="both")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(f"logwright {machine['logwright']}, {machine['processor']}, {machine['file_system']}", fontsize=9)
    drawing.savefig(path, dpi=150)
    pyplot.close(drawing)
    return True
