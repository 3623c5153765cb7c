"""Writes the pictures of the documentation to docs/pictures: terminals with the real output of commands and a plot of
the figures on the page about performance, as SVG, and the live page, as PNG.

    python tools/pictures.py           write the terminals and the plot
    python tools/pictures.py --check   exit with 1 if one of them is not up to date
    python tools/pictures.py --page    write the pictures of the live page; needs Chromium and playwright

The commands run on the journals of `logwright demo`, which are the same in every run.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
COLUMNS = 112
COMMANDS = {
    "developer": ["history journals/queues/mail mail@103"],
    "operator": ["verify journals", "repair journals/damaged --plan"],
    "engineer": [
        "sql \"SELECT key, count(*) AS messages, bar(count(*), 0, 420, 42) AS share FROM 'journals/orders' "
        'GROUP BY key ORDER BY messages DESC, key"'
    ],
}
PAGE = {
    "web-overview": ("", 1150, False, []),
    "web-journal": ("journal/damaged", 800, False, ["text=customer/chen >> nth=0"]),
    "web-queue": ("journal/queues/queue?part=mail", 760, True, []),
    "web-store": ("journal/stores/store", 640, False, ["#slide"]),
}
"""The pictures of the live page: the view, the height, whether it is dark, and what is clicked."""
_COMMAND, _OUTPUT = "#8ec07c", "#ebdbb2"
_WIDTH, _HEIGHT, _MARGIN = 7.8, 18, 14
"""Of a character, a line, and the frame, in pixels."""


def picture(lines: list[str]) -> str:
    """A terminal with these lines. It uses a font of the reader's system."""
    width, height = round(COLUMNS * _WIDTH + 2 * _MARGIN), len(lines) * _HEIGHT + 2 * _MARGIN
    rows = [
        f'<text x="{_MARGIN}" y="{_MARGIN + number * _HEIGHT + 13}" xml:space="preserve" '
        f'fill="{_COMMAND if line.startswith("$ ") else _OUTPUT}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    frame = f'<rect width="{width}" height="{height}" rx="8" fill="#1d2021"/>'
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = 'font-family="monospace" font-size="13"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', frame, *rows, "</svg>", ""])


def lines_of(commands: list[str], directory: Path) -> list[str]:
    lines: list[str] = []
    for command in commands:
        lines += [f"$ logwright {command}", *_run(command, directory), ""]
    return [line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…" for line in lines[:-1]]


def _run(command: str, directory: Path) -> list[str]:
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TZ": "UTC"}
    line = f'exec "{sys.executable}" -m logwright {command}'
    done = subprocess.run(["bash", "-c", line], cwd=directory, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 1: damage found
        raise RuntimeError(f"logwright {command}: {done.stderr}")
    return done.stdout.rstrip("\n").split("\n")


def write_page(directory: Path) -> None:
    """Write the pictures of the live page."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "logwright", "web", "journals", "--listen", "127.0.0.1:0", "--json"]
    server = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name, (view, height, is_dark, clicks) in PAGE.items():
                page = browser.new_page(
                    viewport={"width": 1180, "height": height}, color_scheme="dark" if is_dark else "light"
                )
                page.goto(f"{url}#/{view}")
                page.wait_for_selector(".stack tbody tr:nth-child(8), .row[data-number], .lines, .keys tbody")
                for click in clicks:
                    if click == "#slide":
                        page.get_by_label("Moment").fill("600")
                    else:
                        page.click(click)
                page.wait_for_timeout(1000)  # answers to what was clicked
                page.mouse.move(0, 0)
                page.screenshot(path=PICTURES / f"{name}.png")
            browser.close()
    finally:
        server.terminate()
        server.wait(60)


# --- the plot of performance ------------------------------------------------------------------------------------------


def goals_of(page: str) -> list[tuple[str, float, float]]:
    """The rows of a page with a ratio and a goal for it: what was measured, the ratio and the goal."""
    found = []
    what = first = ""
    for line in page.splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 5:
            continue
        name, _, peer, ratio, goal = cells
        if name.startswith("…"):
            what = f"{first.partition(', ')[0]}, {name.removeprefix('…').strip()}"
        elif name:
            what = first = name
        number, least = re.fullmatch(r"[\d.]+", ratio), re.match(r"≥ ([\d.]+)(?=,|$)", goal)
        if number and least:
            against = peer.partition(": ")[2]
            found.append((f"{what} / {against}" if against else what, float(ratio), float(least[1])))
    return found


def plot(rows: list[tuple[str, float, float]]) -> str:
    """A bar for each row, from its goal to its ratio, on a logarithmic scale."""
    top, left, step, octave = 34, 610, 20, 56
    reached = [math.log2(ratio / goal) for _, ratio, goal in rows]
    zero = left + round(-min(*reached, -1) * octave) + 10
    width, height = zero + round(max(reached) * octave) + 90, top + len(rows) * step + 14
    lines = [f'<text x="{zero}" y="20" text-anchor="middle" fill="#444">the goal</text>']
    for row, ((name, ratio, goal), reach) in enumerate(zip(rows, reached, strict=True)):
        y, length = top + row * step, max(1, round(abs(reach) * octave))
        start = zero if reach >= 0 else zero - length
        color = "#2a7f62" if reach >= 0 else "#b5443c"
        text = name if len(name) <= 96 else name[:95] + "…"
        lines += [
            f'<text x="{left}" y="{y + 12}" text-anchor="end" fill="#222">{escape(text)}</text>',
            f'<rect x="{start}" y="{y + 2}" width="{length}" height="13" fill="{color}"/>',
            f'<text x="{max(zero, start + length) + 5}" y="{y + 12}" fill="#222">{ratio:g} ({goal:g})</text>',
        ]
    lines.append(f'<path d="M{zero} 26V{height - 8}" stroke="#000"/>')
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    background = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, background, *lines, "</svg>", ""])


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        _run("demo journals", Path(directory))
        if "--page" in sys.argv[1:]:
            write_page(Path(directory))
            return 0
        pictures = {name: picture(lines_of(commands, Path(directory))) for name, commands in COMMANDS.items()}
    pictures["benchmarks"] = plot(goals_of((PICTURES.parent / "performance.md").read_text()))
    if "--check" in sys.argv[1:]:
        old = [name for name in pictures if (PICTURES / f"{name}.svg").read_text() != pictures[name]]
        for name in old:
            print(f"{name}.svg is not up to date: run python tools/pictures.py", file=sys.stderr)
        return 1 if old else 0
    for name, text in pictures.items():
        (PICTURES / f"{name}.svg").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
