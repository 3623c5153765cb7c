"""`logwright repair`: previews, carries out or undoes a repair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..core.format import FORMATS
from ..core.repair.plan import Plan, Repairs
from ..errors import WrongUse
from .arguments import DAMAGE_FOUND, GOOD, chosen_format, confirmed, journal_verb, must_ask, yes_option
from .output import inform, print_json, print_line


def _flags_of_formats(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that a format has for its repairs."""
    for format in FORMATS.values():
        for name, help in format.repair_flags.items():
            function = click.option(_option(name), name, is_flag=True, help=help)(function)
    return function


def _option(flag: str) -> str:
    return "--" + flag.replace("_", "-")


@journal_verb(
    "repair",
    examples=[
        ("show the plan", "logwright repair torn --plan"),
        ("repair; without --yes it asks first", "logwright repair torn --yes"),
        ("undo the repair", "logwright repair torn --undo --yes"),
        ("repair, and print what was done as JSON", "logwright repair damaged --yes --json"),
    ],
)
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--undo", is_flag=True, help="Undo the latest repair.")
@_flags_of_formats
@yes_option
def command(
    path: Path, only_plan: bool, undo: bool, yes: bool, format_name: str | None, as_json: bool, **flags: bool
) -> int:
    """Repair a journal so that it can be read to its end and written again.

    Prints first which records will be lost, and adds them to the account of losses in .logwright/losses, which `verify`
    lists from then on. A field that was restored by inference is in the account too. The exit code is 0 if nothing was
    lost, inferred, or left unrepaired, and 1 otherwise. Every byte that is removed is kept in .logwright/cut in the
    journal's directory, so a repair can be undone with --undo. An interrupted repair is completed. The journal is
    locked: no writer may be running. Asks first; without a terminal it needs --yes.
    """
    if undo and only_plan:
        raise WrongUse("--plan and --undo exclude each other")
    format = chosen_format(path, format_name)
    given = [name for name, is_given in flags.items() if is_given]
    for name in given:
        if name not in format.repair_flags:
            raise WrongUse(f"{path}: a repair of {format.name} has no {_option(name)}")
    repairs = format.repairs.with_flags(given)
    if undo:
        return _undo(repairs, path, yes, as_json)
    plan = repairs.plan(path)
    if plan.empty and not only_plan:
        repairs.apply(path, plan)  # refuses if a writer is active
    if plan.empty or only_plan:
        return _describe_plan(path, plan, as_json)
    asking = must_ask(f"repairing {path}", yes)
    if asking:
        _describe(plan)
        if not confirmed(f"Repair {path}?"):
            inform("nothing was changed")
            return DAMAGE_FOUND
    repair = repairs.apply(path, plan)
    assert repair is not None
    if not asking and not as_json:  # after the steps that can fail, such as taking the lock
        _describe(plan)
    if as_json:
        kept = [str(copy) for copy in repair.kept]
        print_json({"done": True, **plan.as_json(), "log": str(repair.log), "kept": kept})
    else:
        far = " as far as possible" if plan.left else ""
        print_line(f"{path}: repaired{far}; what was cut is kept in {repair.log.parent}, and --undo restores it")
        if plan.losses:
            inform(f"the losses are in the account of losses: logwright verify {path} lists them")
    return GOOD if plan.costs_nothing else DAMAGE_FOUND


def _describe(plan: Plan) -> None:
    for line in plan.describe():
        print_line(line)


def _describe_plan(path: Path, plan: Plan, as_json: bool) -> int:
    if as_json:
        print_json({"done": False, **plan.as_json(), "log": None, "kept": []})
        return GOOD if plan.costs_nothing else DAMAGE_FOUND
    _describe(plan)
    if plan.empty:
        print_line(f"{path}: {'nothing that can be repaired' if plan.left else 'nothing to repair'}")
    else:
        inform(f"{path}: nothing was changed; to carry out this plan: logwright repair {path}")
    return GOOD if plan.costs_nothing else DAMAGE_FOUND


def _undo(repairs: Repairs, path: Path, yes: bool, as_json: bool) -> int:
    if must_ask(f"undoing a repair of {path}", yes, preview="") and not confirmed(f"Undo the latest repair of {path}?"):
        inform("nothing was changed")
        return GOOD
    repair = repairs.undo(path)
    if as_json:
        print_json({"undone": True, **repair.plan.as_json(), "log": str(repair.log)})
    else:
        print_line(f"{path}: the repair {repair.log.name} was undone")
    return GOOD
