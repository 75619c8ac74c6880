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
from kvproof.gate.side.connector_plans import PlayedPlan
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
    for one in (found.played, found.before):
        if one is None or breaks_alone(subject, one.plan, found.rule):
            found.played = one
            return
    found.needs_earlier = True


def breaks_alone(subject: TestedConnector, plan: ConnectorPlan, check: str) -> bool:
    """Whether a plan breaks a check alone. Also true if its process gave no answer: then nothing
    speaks against it."""
    broken = broken_alone(subject, plan)
    return broken is None or check in broken


def main(folder: Path) -> None:
    """Play the plan of a folder to its end, and write there which checks it breaks."""
    children.end_with_parent()
    subject, plan = msgspec.json.decode((folder / ASKED).read_bytes(), type=Asked)
    names = {each.signature.check for each in PlayedPlan(subject.name, subject, plan).breaks}
    (folder / ANSWER).write_bytes(msgspec.json.encode(sorted(names)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
