"""A finding's trace as a pytest file in vLLM's own terms, and its outcome on both trees."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.invariants.registry import INVARIANTS
from kvproof.live.reproducer import choosing, running, script
from kvproof.live.reproducer.choosing import Claim, Seen
from kvproof.live.reproducer.facts import Fact, facts
from kvproof.live.reproducer.layout import WIDTH, assigned, call, comment, literal, message, prose
from kvproof.live.reproducer.pieces import NAMES, Piece, Writer
from kvproof.live.reproducer.running import Environment, Outcome, Unseen
from kvproof.live.reproducer.settings import Settings, settings, unsupported
from kvproof.model.config import Cluster
from kvproof.model.files.folders import made_folder, part_of
from kvproof.model.files.writing import write_fresh, write_new
from kvproof.model.finding import Finding
from kvproof.model.spec.registry import GUARDS
from kvproof.model.traces.trace import Trace

TRIES_MAX = 3
"""The most assertions that are tried."""

STEPS = 20
"""Steps after which a request that waits for nothing must have finished."""

RUNS = "python -m pytest --noconftest -p no:cacheprovider"


@dataclass(frozen=True)
class Reproducer:
    """A pytest file, and its outcome on head and on base. `text` is what it contains."""

    path: Path
    head: Outcome
    base: Outcome
    text: str


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
        pieces.append(_run_on(cluster, writer, len(trace.events)))
    start = script.started(cluster, writer, finding.invariant == "predicted_is_taken")
    looks = tuple(facts(cluster, finding))
    return Draft(cluster, finding, chosen, start, tuple(pieces), looks)


def hangs(finding: Finding) -> bool:
    """Whether a finding says that something which must happen does not happen."""
    invariant = INVARIANTS.get(finding.invariant)
    return finding.invariant == "step_makes_progress" or (
        invariant is not None and invariant.kind == "eventually"
    )


def _run_on(cluster: Cluster, writer: Writer, index: int) -> Piece:
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
    source = "\n".join(lines)
    return script.header(draft.settings, [source, "print_seen(observe)"]) + source + "\n\nprint_seen(observe)\n"


def write(
    trace: Trace, head: Environment, base: Environment | None, folder: Path, name: str
) -> Reproducer | str:
    """Write `test_NAME.py` into a folder, run it on head and on base, and return both outcomes.
    Returns the reason where no file fails on head and passes on base.

    `head` and `base` are environments for child processes, each with its tree first on PYTHONPATH.
    Without `base`, the file asserts what must hold on every vLLM. Raises UsageError where the file
    cannot be written.
    """
    draft = drafted(trace)
    if isinstance(draft, str):
        return draft
    trees = [head] if base is None else [head, base]
    with part_of(made_folder(folder) / name) as scratch:
        try:
            found = _observed(draft, trees, scratch)
        except Unseen as error:
            return str(error)
        why = choosing.departs(trace.events, draft.pieces, draft.facts, found[0])
        if why:
            return why
        claims = choosing.claims(
            draft.finding, draft.pieces, draft.facts, found[0], found[1] if base else None
        )
        return _first_that_tells(draft, claims, trees, (scratch, folder), name)


def _observed(draft: Draft, trees: Sequence[Environment], scratch: Path) -> list[list[Seen]]:
    file = scratch / "observe.py"
    write_new(file, observing(draft))
    return running.on_each(trees, lambda tree: running.observed(file, tree))


def _first_that_tells(
    draft: Draft,
    claims: Sequence[Claim],
    trees: Sequence[Environment],
    folders: tuple[Path, Path],
    name: str,
) -> Reproducer | str:
    """The file with the first claim that fails on head and passes on base."""
    scratch, folder = folders
    stem = "test_" + re.sub(r"\W", "_", name)
    why = "no difference between head and base can be seen in vLLM's own terms"
    if len(trees) == 1:
        why = "without a base it is not known what a vLLM without this defect shows"
    for number, claim in enumerate(claims[:TRIES_MAX]):
        written = generated(draft, claim, name)
        file = scratch / f"{stem}_{number}.py"
        write_new(file, written)
        outcomes = running.on_each(trees, lambda tree, file=file: running.tested(file, tree))
        (on_head, said), (on_base, other) = [*outcomes, ("not run", "")][:2]
        if on_head == "fails" and on_base in ("passes", "not run"):
            path = write_fresh(folder, stem, ".py", written)
            return Reproducer(path, on_head, on_base, written)
        why = f"the file {on_head} on head and {on_base} on base ({(said or other)[-200:]})"
    return why


def generated(draft: Draft, claim: Claim, name: str) -> str:
    """The whole file."""
    last = _assertion(draft, claim)
    lines = script.body(draft.script, claim.piece, last)
    test = re.sub(r"\W", "_", draft.finding.invariant)
    doc = _docstring(draft.finding, name)
    return script.text(draft.settings, doc, test, lines)


def _sentence(finding: Finding) -> tuple[str, str]:
    """What must be true, and where it comes from."""
    check = INVARIANTS.get(finding.invariant) or GUARDS.get(finding.invariant)
    return (check.name, getattr(check, "origin", "")) if check else (finding.invariant, "")


def _docstring(finding: Finding, name: str) -> list[str]:
    says, origin = _sentence(finding)
    stem = "test_" + re.sub(r"\W", "_", name)
    return [
        *prose(f"What must be true: {says}{f' ({origin})' if origin else ''}.", opens=True),
        "",
        *prose(f"What happens: {finding.sentence}."),
        "",
        f"Run: {RUNS} {stem}.py",
    ]


def _assertion(draft: Draft, claim: Claim) -> list[str]:
    """The last lines of the test. A statement that raises needs none."""
    if claim.fact is None:
        return comment("The last statement must not raise.", 4)
    source, says = claim.fact.source, _sentence(draft.finding)[0]
    before: list[str] = []
    checked = _checked(source, claim.expected)
    if len(f"    assert {checked}, (") > WIDTH:
        before = [*call(f"seen = {source}", [], "", 4), *assigned("expected", claim.expected, 4)]
        checked = "seen == expected"
    one = f"    assert {checked}, {literal(says)}"
    if len(one) <= WIDTH:
        return [*before, one]
    return [*before, f"    assert {checked}, (", *message(says, 8), "    )"]


def _checked(source: str, expected: Any) -> str:
    """The condition that an expression has a value."""
    if expected is True:
        return source
    if expected is False:
        return source.replace(" in ", " not in ", 1) if " in " in source else f"not {source}"
    return f"{source} is None" if expected is None else f"{source} == {literal(expected)}"
