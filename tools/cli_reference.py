"""Writes docs/cli.md from the help texts of the verbs, so that the page always agrees with the program.

    python tools/cli_reference.py           write the page
    python tools/cli_reference.py --check   exit with 1 if the page is not up to date

The page is made from the commands themselves, not from their printed help, whose layout is click's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from logwright.cli import PROGRAM, VERBS, commands, every_verb
from logwright.cli.arguments import Verb

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

INTRODUCTION = """\
# The command line

`tools/cli_reference.py` generates this page from the help texts; `logwright VERB --help` prints the same.

Every verb accepts every format, and detects it unless `--format` is given. It prints tables, or JSON with `--json`. The
examples use the journals that `logwright demo` writes to the directory `demo`:

```bash
logwright demo && cd demo
```

## Common rules

- **Data goes to stdout, messages to stderr.** Warnings and errors are one line each and begin with `logwright: `.
- **Exit codes**: 0 success, 1 damage found, 2 wrong use or unreadable, 130 after Ctrl-C. A crash may leave a torn
  tail, which the next writer cuts off: it is a problem for `verify` (1) and a warning for all other verbs (0). If the
  reader of the output closes the pipe (`| head`), the command ends silently with 0.
- **Reading needs no lock and changes nothing**, so every journal can be read while it is written.
- **Links**: a symbolic link given as PATH is followed. Links inside a journal are never followed.
- **Damage**: `--mode failfast` stops at damage with an error. `permissive` prints the damaged range among the records
  and continues after it. `dropmalformed` continues, and lists the skipped ranges on stderr. The exit code is always 1.
- **Offsets**: `--from` is the first offset that is included, `--to` the first one that is not. Operations of a queue
  have no offsets; they are identified by their places, `FILE@POSITION`.
- **Times** are nanoseconds since the epoch as a plain number, ISO 8601 (`2026-11-15`, `2026-11-15T22:15:00.5Z`,
  `2026-11-15 22:15+01:00`), `now`, or relative to it (`2 hours ago`, `1h30m ago`). They are shown in UTC, and a time
  without a zone is UTC; with `--local`, local time replaces UTC. A time selects the first record that is not earlier.
- **Durations** are `90s`, `12h`, `1h30m`, `7 days`. **Sizes** are bytes, or `64k`, `10MiB` (by 1024), `2GB` (by 1000).
- **JSON** is one object per line, in ASCII. Bytes are base64. Every record has `file` (relative to PATH), `position`
  and `size`. A record of sej also has `offset`, `timestamp` (nanoseconds, or null), `type`, `key` and `value`; below a
  root of shards it has `shard`. A record of kestrel has `op`, and the fields of its operation: of `xid`, `count`,
  `added` (milliseconds), `expires` (milliseconds, or null) and `data`; in a directory of several queues it has
  `queue`. `--decode` adds `decoded`. A damaged range has `file`, `position`, `size`, `damage` (the reason) and `kind`.
- **Tables** are cropped to the width of the terminal; in a pipe they are complete and without colours. Control
  characters in keys and values are printed as escapes. A command that runs longer than a second shows a progress bar on
  stderr, with percent and time left.

| code | when |
|---|---|
| 0 | success; also a torn tail, for every verb except `verify` |
| 1 | damage found, or a repair that lost, inferred or left something |
| 2 | wrong use; no such journal; not readable; locked; a question about records that are no longer kept |
| 130 | Ctrl-C |
"""

EQUIVALENTS = """\
## Coming from the original sej

Each command of the original has an equivalent:

| original | here |
|---|---|
| `sej dump FILE` | `logwright dump FILE`, or for a whole journal `logwright dump DIRECTORY` |
| `sej scan DIR --start T --end T --type N` | `logwright dump DIR --since T --until T --type N`, with `--decode` |
| `sej count DIR --start T --end T --type N` | `logwright count DIR --since T --until T --type N` |
| `sej offset DIR` | `logwright offsets DIR` |
| `sej reset DIR --offset NAME --start T` | `logwright reset DIR NAME --to T --plan` |
| `sej reset DIR --offset NAME --start T --reset` | `logwright reset DIR NAME --to T` |
| `sej tail DIR --count N` | `logwright tail DIR -n N`, and `-f` to follow |
| `sej old DIR --days N` | `logwright clean DIR --max-age Nd --plan`; without `--plan` it removes the listed segments |
| `sej file FILE` | `logwright inspect FILE` |
| `sej timestamp DIR --offset NAME` | `logwright offsets DIR`: the column `time` |

The original changes a journal even when it only reads: it creates an empty segment if there is none. These verbs do
not.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Verbs\n", _list_of_verbs()]
    context = click.Context(commands, info_name=PROGRAM)
    for name, verb in every_verb():
        parts.append(_section(name, verb, click.Context(verb, info_name=name, parent=context)))
    return "\n".join([*parts, EQUIVALENTS])


def _list_of_verbs() -> str:
    """One row for each verb; a group links to its first verb."""
    names = [name for name, _ in every_verb()]
    rows = []
    for name, about in VERBS.items():
        first = next(one for one in names if one.split()[0] == name)
        rows.append(f"| [`{name}`](#logwright-{first.replace(' ', '-')}) | {about} |")
    return "\n".join(["| verb | does |", "|---|---|", *rows, ""])


def _section(name: str, command: Verb, context: click.Context) -> str:
    usage = " ".join(["logwright", name, *command.collect_usage_pieces(context)])
    lines = [f"## logwright {name}", "", f"    {usage}", "", *_paragraphs(command.help or "")]
    lines += ["| option | |", "|---|---|", *(_option_row(option, context) for option in _options(command)), ""]
    lines += [
        "```bash",
        *(line for purpose, example in command.examples for line in (f"# {purpose}", example)),
        "```",
        "",
    ]
    return "\n".join(lines)


def _paragraphs(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [*(line.strip() for line in paragraph.splitlines()), ""]
    return lines


def _options(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def _option_row(option: click.Option, context: click.Context) -> str:
    names = ", ".join(option.opts)
    if not option.is_flag:
        kind = "|".join(option.type.choices) if isinstance(option.type, click.Choice) else option.make_metavar(context)
        names += f" {kind}"
    default = f" Default: {option.default}." if option.show_default and option.default is not None else ""
    required = " Required." if option.required else ""
    about = (option.help or "").replace("|", "\\|")
    return f"| `{names}` | {about}{default}{required} |".replace(
        "`" + names + "`", "`" + names.replace("|", "\\|") + "`"
    )


def main() -> int:
    if "--check" in sys.argv[1:]:
        if PAGE.is_file() and PAGE.read_text() == page():
            return 0
        print(f"{PAGE} is not up to date: run python tools/cli_reference.py", file=sys.stderr)
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
