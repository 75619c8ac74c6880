"""The block ledger: a trace as one HTML file that needs no network and no server.

The page has the events with their changes of the state, as the trace file has them. Its program
makes the state after any event of them, and shows a lane for each request and each block.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from kvproof.invariants.registry import CHECKS
from kvproof.model.events import describe
from kvproof.model.files.reading import read_text
from kvproof.model.reference.apply import initial
from kvproof.model.traces.state_diff import flat
from kvproof.model.traces.trace import Trace
from kvproof.reports.output.search import PointOfNoReturn
from kvproof.reports.terminal import replay_line
from kvproof.reports.trace.engines import group_text
from kvproof.reports.trace.events import About
from kvproof.reports.trace.functions import functions
from kvproof.reports.trace.legend import WORDS

PARTS = {"style": "ledger.css", "program": "ledger.js"}
"""The files of the page, by the place in the template that each of them takes."""


FOLDER = Path(__file__).parent


def page(trace: Trace, path: Path | None = None, point: PointOfNoReturn | None = None) -> str:
    """The page of a trace. `path` is its file, which is named in the command that replays it."""
    html = _file("ledger.html")
    data = json.dumps(_data(trace, path, point), ensure_ascii=True).replace("<", "\\u003c")
    for place, name in PARTS.items():
        html = html.replace(f"/*{place}*/", _file(name))
    return html.replace("/*data*/null", data)


def _file(name: str) -> str:
    return read_text(FOLDER / name, "part of the page", 1)


def _data(trace: Trace, path: Path | None, point: PointOfNoReturn | None) -> dict[str, Any]:
    near = _near(trace, point.irrelevant if point else ())
    request = trace.finding.about.request if trace.finding else ""
    changes = trace.changes or [None] * len(trace.events)
    return {
        "title": _title(trace),
        "finding": _finding(trace),
        "replay": replay_line(trace, path) if path else "",
        "point": point.event if point else None,
        "engines": [
            {
                "name": engine.name,
                "blocks": engine.num_blocks,
                "groups": [group_text(group) for group in engine.groups],
                "sizes": [group.block_size for group in engine.groups],
                "kinds": [group.kind for group in engine.groups],
                "split": engine.physical_per_logical,
            }
            for engine in trace.cluster.engines
        ],
        "initial": flat(initial(trace.cluster)),
        "words": WORDS,
        "steps": [
            {
                "text": describe(event),
                "functions": functions(event, request),
                "near": number in near,
                "changed": change.changed if change else None,
                "removed": change.removed if change else (),
            }
            for number, (event, change) in enumerate(zip(trace.events, changes, strict=True), 1)
        ],
    }


def _title(trace: Trace) -> str:
    where = trace.machine + (f" (vLLM {trace.vllm})" if trace.vllm else "")
    faults = f", faults {', '.join(trace.faults)}" if trace.faults else ""
    return f"{len(trace.events)} events on {where}, cluster {trace.cluster.name}{faults}"


def _finding(trace: Trace) -> dict[str, Any] | None:
    if trace.finding is None:
        return None
    known = CHECKS.get(trace.finding.invariant)
    about = trace.finding.about
    return {
        "name": trace.finding.invariant,
        "severity": known.severity.words if known and known.severity else "",
        "must": f"It must be true that {known.name} ({known.origin})." if known else "",
        "reasons": trace.finding.reasons,
        "engine": about.engine,
        "request": about.request,
        "block": about.block,
    }


def _near(trace: Trace, irrelevant: Collection[int]) -> set[int]:
    """The numbers of the events that concern the finding."""
    numbers = set(range(1, len(trace.events) + 1))
    if trace.changes is not None:
        about, states = About(trace, False), trace.states()
        before = next(states)
        for number, (change, after) in enumerate(zip(trace.changes, states, strict=True), 1):
            if not any(entry.near for entry in about.entries(change, before, after)):
                numbers.discard(number)
            before = after
    last = {len(trace.events)} if trace.finding is not None else set()
    return numbers - set(irrelevant) | last
