"""A finding's trace as a pytest file in vLLM's own terms, and its outcome on both trees."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kvproof.live.reproducer import choosing, running
from kvproof.live.reproducer.choosing import Expectation, Observation
from kvproof.live.reproducer.drafting import Draft, drafted, observing
from kvproof.live.reproducer.running import Environment, NotObserved, Outcome
from kvproof.live.reproducer.wording import file_stem, generated
from kvproof.model.files.folders import made_folder, part_of
from kvproof.model.files.writing import write_fresh, write_new
from kvproof.model.traces.trace import Trace

TRIES_MAX = 3
"""The most assertions that are tried."""


@dataclass(frozen=True)
class Reproducer:
    """A pytest file, and its outcome on head and on base. `text` is what it contains."""

    path: Path
    head: Outcome
    base: Outcome
    text: str


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
        except NotObserved as error:
            return str(error)
        why = choosing.departs(trace.events, draft.pieces, draft.facts, found[0])
        if why:
            return why
        claims = choosing.claims(
            draft.finding, draft.pieces, draft.facts, found[0], found[1] if base else None
        )
        return _first_that_differs(draft, claims, trees, (scratch, folder), name)


def _observed(draft: Draft, trees: Sequence[Environment], scratch: Path) -> list[list[Observation]]:
    file = scratch / "observe.py"
    write_new(file, observing(draft))
    return running.on_each(trees, partial(running.observed, file))


def _first_that_differs(
    draft: Draft,
    claims: Sequence[Expectation],
    trees: Sequence[Environment],
    folders: tuple[Path, Path],
    name: str,
) -> Reproducer | str:
    """The file with the first claim that fails on head and passes on base."""
    scratch, folder = folders
    stem = file_stem(name)
    why = "no difference between head and base can be seen in vLLM's own terms"
    if len(trees) == 1:
        why = "without a base it is not known what a vLLM without this defect shows"
    for number, claim in enumerate(claims[:TRIES_MAX]):
        written = generated(draft, claim, name)
        file = scratch / f"{stem}_{number}.py"
        write_new(file, written)
        outcomes = running.on_each(trees, partial(running.tested, file))
        (on_head, result), (on_base, other) = [*outcomes, ("not run", "")][:2]
        if on_head == "fails" and on_base in ("passes", "not run"):
            path = write_fresh(folder, stem, ".py", written)
            return Reproducer(path, on_head, on_base, written)
        why = f"the file {on_head} on head and {on_base} on base ({(result or other)[-200:]})"
    return why
