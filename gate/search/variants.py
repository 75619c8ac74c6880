"""Plans in which base may show what head breaks: those near head's plan, and those of what is known
of vLLM. A defect that base has too, and that another order of steps or copies hides there in this
very plan, is likely to show in one of them: then it is not new."""

from collections.abc import Iterator
from itertools import islice, product
from typing import Any

from msgspec.structs import replace

from kvproof.gate.difference.workload import Play
from kvproof.gate.side import known_plans
from kvproof.live.connectors.shipped import SHIPPED

VARIANTS_MAX = 48
"""The most plans near one."""

COPIES = [{"late": late, "steps": steps} for late, steps in product((False, True), range(4))]
"""When copies in the background are made and reported."""


EMPTIED = [{"type": "Drain"}, {"type": "Reset", "connector": False}]
"""What empties the engine's own cache: a hit there may hide on one side what a load does."""


def variants(play: Play, name: str) -> list[Play]:
    """Plans that differ in one thing from that of a play: in what the engine's own cache still has
    when a request comes, in when copies are made, in a step more, or in an action less. Requests
    stay as they are, so that later actions mean the same."""
    plans = islice(_plans(play.plan), VARIANTS_MAX)
    return [replace(play, name=f"{name}, variant {n}", plan=plan) for n, plan in enumerate(plans)]


def of_findings(connector: str) -> list[Play]:
    """The plans of the findings in `findings/` that were seen with a class of this connector."""
    found = [(name, each.run) for name, each in known_plans.plans()]
    own = _classes(connector)
    return [
        replace(run, name=f"finding {name}")
        for name, run in found
        if isinstance(run, Play) and own & _classes(run.connector)
    ]


def _classes(connector: str) -> set[str]:
    return {*SHIPPED[connector].subject.classes}


def _plans(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    actions = plan["actions"]
    arrivals = [index for index, each in enumerate(actions) if each["type"] == "Submit"]
    for index in arrivals[1:]:
        yield {**plan, "actions": [*actions[:index], *EMPTIED, *actions[index:]]}
    for copies in COPIES:
        yield {**plan, "copies": copies}
    for index in range(1, len(actions) + 1):
        yield {**plan, "actions": [*actions[:index], {"type": "Step"}, *actions[index:]]}
    for index, action in enumerate(actions):
        if action["type"] != "Submit":
            yield {**plan, "actions": [*actions[:index], *actions[index + 1 :]]}
