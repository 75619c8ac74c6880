"""A trace as statements of a test, before it is known what the test asserts."""

from typing import NamedTuple

from kvproof.live.reproducer import script
from kvproof.live.reproducer.facts import Fact, facts, hangs, subjects
from kvproof.live.reproducer.pieces import Piece, Writer
from kvproof.live.reproducer.settings import Settings, settings, unsupported
from kvproof.model.config import Cluster
from kvproof.model.finding import Finding
from kvproof.model.subjects import Subject
from kvproof.model.traces.trace import Trace

STEPS = 20
"""Steps after which a request that waits for nothing must have finished."""


class Draft(NamedTuple):
    """A trace as statements, before it is known what they assert."""

    cluster: Cluster
    finding: Finding
    settings: Settings
    start: tuple[str, ...]
    pieces: tuple[Piece, ...]
    facts: tuple[Fact, ...]

    @property
    def script(self) -> script.Script:
        """The statements."""
        return script.Script(self.start, self.pieces)


def drafted(trace: Trace) -> Draft | str:
    """The statements of a trace, or why there are none."""
    finding, cluster = trace.finding, trace.cluster
    if finding is None:
        return "the trace has no finding"
    why = unsupported(cluster)
    if why:
        return why
    chosen = settings(cluster)
    writer = Writer(cluster, chosen)
    pieces = writer.pieces(trace.events)
    if hangs(finding):
        pieces.append(_run_on(cluster, len(trace.events)))
    start = script.started(cluster, writer, Subject.PREDICTED in subjects(finding))
    looks = tuple(facts(cluster, finding))
    return Draft(cluster, finding, chosen, start, tuple(pieces), looks)


def _run_on(cluster: Cluster, index: int) -> Piece:
    """The engines run on, for long enough to finish everything."""
    engine = cluster.decode
    if cluster.disaggregated:
        source = f"    serve(prefill, decode, {STEPS})"
    elif engine.overlaps:
        source = f"    run_dispatched(scheduler, in_flight, {STEPS})"
    else:
        source = f"    run_steps(scheduler, {STEPS})"
    return Piece(index, source, "All that can finish finishes.", engine.name)


def observing(draft: Draft) -> str:
    """A program that prints what is seen after each statement."""
    looks = [f"            plain_value(lambda: {fact.source})," for fact in draft.facts]
    lines = ["def observe(tmp_path: Path, seen: list[Any]) -> None:", *draft.start]
    lines += ["    def look() -> None:", "        seen.append(["]
    lines += [*looks, "        ])"]
    for piece in draft.pieces:
        lines += [piece.source, "    look()"]
    source, end = "\n".join(lines), "print_seen(observe)"
    return f"{script.header(draft.settings, [source, end])}{source}\n\n\n{end}\n"
