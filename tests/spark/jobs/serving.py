"""A driver that serves requests line by line: it reads a request in JSON and writes the result.

    {"do": "read", "with": {"path": "/journals/orders"}}        ->  {"done": 1000}  or  {"failed": "WrongUse: …"}

The scripts beside this one are run directly, by a Python that need not have the tests. So their definitions are sent to
Spark's tasks by value.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


def serve(actions: Mapping[str, Callable[..., Any]]) -> None:
    """Answer requests until there are no more. Only answers go to stdout; Spark's output goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"done": actions[request["do"]](**request["with"])}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
