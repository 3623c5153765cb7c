"""Reading and writing BONJSON, compared with Python's json, which is also written in C.

The values are the entries of a versioned journal, decoded one by one as in a journal, and larger documents of one kind.
The goals are to read an entry five times as fast as json, and no kind of value more slowly.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Clock, Figure, Plan, Turns
from logwright.versioned.bytes import bonjson


def entries(count: int) -> list[Any]:
    """Entries like those of a store of measurements."""
    return [
        {"t": 1_699_564_801_000_000_000 + number, "k": f"key{number % 1000}", "o": f"value{number}"}
        for number in range(count)
    ]


def documents(count: int) -> dict[str, list[Any]]:
    """Documents of each kind of value, `count` values in total for each kind."""
    chance = random.Random(1)
    return {
        "floats": [[chance.random() for _ in range(1000)] for _ in range(count // 1000)],
        "integers": [[chance.randrange(-(2**40), 2**40) for _ in range(1000)] for _ in range(count // 1000)],
        "strings": [[f"string number {number}" for number in range(1000)] for _ in range(count // 1000)],
        "objects": [
            [{"id": number, "name": f"user {number}", "score": number / 7, "on": True} for number in range(250)]
            for _ in range(count // 1000)
        ],
    }


def timed(function: Callable[[Any], Any], items: list[Any], values: int) -> Callable[[], float]:
    def run() -> float:
        clock = Clock(processor=True)
        with clock.running():
            for item in items:
                function(item)
        return clock.per_item_ns(values)

    return run


def compare(plan: Plan, what: str, items: list[Any], values: int, goal: float) -> list[Figure]:
    """Reading and writing one kind of document."""
    binary, text = [bonjson.encode(item) for item in items], [json.dumps(item) for item in items]
    turns = Turns(plan.rounds).run(
        {
            "decode": timed(bonjson.decode, binary, values),
            "loads": timed(json.loads, text, values),
            "encode": timed(bonjson.encode, items, values),
            "dumps": timed(json.dumps, items, values),
        }
    )
    return [
        Figure("bonjson", f"{name} {what}", turns.median(name), turns.median(peer), "ns", f"json.{peer}", least)
        for name, peer, least in (("decode", "loads", goal), ("encode", "dumps", 1.0))
    ]


def run(plan: Plan) -> list[Figure]:
    """Nanoseconds per entry, then per value of each kind."""
    count = plan.amount(200_000, 20_000)
    figures = compare(plan, "entry", entries(count), count, 5.0)
    for what, items in documents(count).items():
        figures += compare(plan, what, items, count, 1.0)
    return figures
