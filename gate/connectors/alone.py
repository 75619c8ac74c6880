"""An episode in a process of its own, in which no earlier episode has left anything.

A connector may keep what it stores in a module, as a server does that outlives its engines. A plan
then breaks a rule because of what earlier plans have stored, and breaks nothing when a user plays
it again.
"""

import os
import sys
import tempfile
from pathlib import Path

import msgspec

from kvproof.gate.connectors.search import PlanSearch
from kvproof.live import children
from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.plans.connector import ConnectorPlan

ASKED, ANSWER = "plan.json", "broken.json"

Asked = tuple[TestedConnector, ConnectorPlan]


def broken_alone(subject: TestedConnector, plan: ConnectorPlan) -> tuple[str, ...] | None:
    """The ids of the rules that a plan breaks alone. None where its process gave no answer."""
    with tempfile.TemporaryDirectory(prefix="kvproof-alone-") as folder:
        Path(folder, ASKED).write_bytes(msgspec.json.encode((subject, plan)))
        path = os.pathsep.join(filter(None, sys.path))
        command = [sys.executable, "-m", __name__, folder]
        children.run(command, env={**os.environ, "PYTHONPATH": path})
        try:
            return msgspec.json.decode(Path(folder, ANSWER).read_bytes(), type=tuple[str, ...])
        except OSError:
            return None


def confirm(subject: TestedConnector, found: PlanSearch) -> None:
    """Play the plan that was found alone. Where it breaks its rule only after earlier episodes, the
    plan that was found first, before it was made shorter, takes its place if it needs none of them.
    Else `found.needs_earlier` says so."""
    if found.plan is None or breaks_alone(subject, found.plan, found.rule):
        return
    first = found.first
    if first is not None and breaks_alone(subject, first[0], found.rule):
        found.plan, found.result = first
        return
    found.needs_earlier = True


def breaks_alone(subject: TestedConnector, plan: ConnectorPlan, check: str) -> bool:
    """Whether a plan breaks a check alone. Also true if its process gave no answer: then nothing
    speaks against it."""
    broken = broken_alone(subject, plan)
    return broken is None or check in broken


def main(folder: Path) -> None:
    """Play the plan of a folder to its end, and write there which checks it breaks."""
    from kvproof.live.connectors.episode import play
    from kvproof.live.connectors.judging import broken
    from kvproof.model.facts.connectors import Fact, Past

    children.end_with_parent()
    asked = msgspec.json.decode((folder / ASKED).read_bytes(), type=Asked)
    past, names = Past(), dict[str, None]()

    def note(_engine: object, _at: int, facts: list[Fact]) -> bool:
        names.update(dict.fromkeys(finding.invariant for finding in broken(facts, past)))
        return True

    play(*asked, note)
    (folder / ANSWER).write_bytes(msgspec.json.encode((*names,)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
