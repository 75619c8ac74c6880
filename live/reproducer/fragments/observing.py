"""Prints what is seen of vLLM after each statement of a test."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def plain_value(look: Callable[[], Any]) -> Any:
    """What is seen, as plain data, or why nothing is seen."""
    try:
        return json.loads(json.dumps(look()))
    except Exception as error:
        return {"none": True, "raised": f"{type(error).__name__}: {error}"}


def print_seen(observe: Callable[[Path, list[Any]], None]) -> None:
    """Run the statements to the first that raises, and print what was seen."""
    seen: list[Any] = []
    raised = None
    try:
        observe(Path(sys.argv[1]), seen)
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    print("\n" + json.dumps({"seen": seen, "raised": raised}))
