"""Twelve refactorings and twelve changes of one value in vLLM, and the runs in which the digest
tells head from base.

    python -m benchmarks.digest --folder FOLDER [--only NAME ...] [--minutes N]
    python -m benchmarks.digest --page

Both sides take the same runs, as those of a gate do: random episodes of some presets, plans for
connectors, and plans for engine cores. A refactoring must differ in none
of them, a changed value in some. The answers are kept in answers.json, so a run that was stopped
continues: what has an answer is not driven again, unless it was changed. `--page` writes
reports/digest.md and runs nothing. Exit code: 0 all answers are right, 1 one is wrong, 2 bad
usage, 3 some have not been driven.
"""

import argparse
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import NamedTuple

from benchmarks.kept import Answer, Answers
from benchmarks.planted.chooser import installed
from benchmarks.planted.mistakes import tree_with
from kvproof.gate.difference.result import Result, pairs
from kvproof.gate.difference.workload import Again, Engines, Episodes, Plays, Workload
from kvproof.gate.search.side import Side, started
from kvproof.gate.side.drawn_plans import with_plans
from kvproof.live.trees.naming import named
from kvproof.live.trees.tree import environment
from kvproof.model import interruption
from kvproof.model.presets import cluster_named

HERE = Path(__file__).parent
ANSWERS = Answers(HERE / "answers.json")
PAGE = HERE.parents[1] / "reports" / "digest.md"

CLUSTERS = ("full", "pd-default", "events", "hybrid", "drafts")
EPISODES, STEPS = 5, 30
CONNECTORS = ("offloading-events", "nixl-pull")
PLANS, ENGINES = 10, 20


class Change(NamedTuple):
    """A change of one file of vLLM: each old text is replaced wherever it stands. `effect` says
    whether a user, or another part of vLLM, can see it."""

    name: str
    effect: bool
    file: str
    about: str
    changes: Sequence[tuple[str, str]]

    @property
    def digest(self) -> str:
        """What tells two changes of one name apart."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    def source(self, package: Path) -> str:
        """The source of the file with the change. Raises ValueError where an old text is gone."""
        text = (package / self.file).read_text(encoding="utf-8")
        for old, new in self.changes:
            if old not in text:
                raise ValueError(f"{self.name}: {self.file} has no {old!r}")
            text = text.replace(old, new)
        return text


def changes() -> list[Change]:
    """All changes."""
    return [Change(**row) for row in json.loads((HERE / "changes.json").read_text("utf-8"))]


def answer_of(change: Change) -> Answer | None:
    """The answer to a change as it stands now; None where there is none."""
    return ANSWERS.of(change.name, change.digest)


def is_right(change: Change, answer: Answer) -> bool:
    """Whether the digest told head from base exactly where it should."""
    return bool(answer["effect"]) == change.effect and not answer["not_driven"]


def workloads(base: Side) -> list[Workload]:
    """The runs, with the plans for connectors that base accepts."""
    made: list[Workload] = [
        Episodes(f"episodes of {name}", cluster_named(name), 0, EPISODES, STEPS)
        for name in CLUSTERS
    ]
    for name in CONNECTORS:
        made.append(with_plans(Plays(f"plans for {name}", name, 0, PLANS), base.accepts(name)))
    return [*made, Engines("engines", 0, ENGINES)]


def as_taken(workload: Workload, result: Result) -> Workload:
    """The same runs for the other side."""
    if isinstance(workload, Episodes):
        return Again(workload.name, workload.cluster, result.taken)
    return workload


def side(stack: ExitStack, name: str, site: Path, folder: Path) -> Side:
    """A side that drives the vLLM in a folder."""
    tree = named(str(site), folder / "cache")
    made = stack.enter_context(started(environment(tree)))
    if failure := made.look({}).failure:
        sys.exit(f"{name}: {failure}")
    return made


def drive(wanted: Sequence[Change], folder: Path, until: float) -> None:
    """Drive all changes that have no answer yet, until this time."""
    package = installed()
    with interruption.handled(), ExitStack() as stack:
        base = side(stack, "base", package.parent, folder)
        asked = workloads(base)
        on_base = base.drive(asked)
        runs = [as_taken(*each) for each in zip(asked, on_base, strict=True)]
        for change in wanted:
            if answer_of(change) is None and time.monotonic() < until:
                tree = folder / change.name
                tree_with(package, tree, change.file, change.source(package))
                with ExitStack() as own:
                    on_head = side(own, change.name, tree, folder).drive(runs)
                shutil.rmtree(tree)
                keep(change, on_base, on_head)


def keep(change: Change, base: Sequence[Result], head: Sequence[Result]) -> None:
    """Keep the answer to a change."""
    both = list(zip(base, head, strict=True))
    parted = {
        one.name: sum(pair.parts_at is not None for pair in pairs(one, other))
        for one, other in both
    }
    answer = {
        "digest": change.digest,
        "date": date.today().isoformat(),
        "runs": sum(len(pairs(*each)) for each in both),
        "effect": sum(parted.values()),
        "where": [name for name, number in parted.items() if number],
        "not_driven": [one.name for one, other in both if not pairs(one, other)],
    }
    ANSWERS.keep(change.name, answer)
    told = "right" if is_right(change, answer) else "WRONG"
    print(f"{change.name:24} {answer['effect']:3} of {answer['runs']:3} {told}", flush=True)


def page() -> Iterator[str]:
    """The lines of the page."""
    yield "# What the digest of a run tells\n"
    yield "Made by `python -m benchmarks.digest`. Base is vLLM as released, head has one change,"
    yield "and both take the same runs: episodes of presets, plans for connectors and for engines."
    yield "A refactoring must have no effect, a changed value must have one.\n"
    for effect, title in ((False, "Refactorings"), (True, "Changes of one value")):
        these = [each for each in changes() if each.effect == effect]
        known = [(each, found) for each in these if (found := answer_of(each))]
        right = sum(is_right(*each) for each in known)
        yield f"## {title}: {right} of {len(known)} right, of {len(these)} in all\n"
        yield "| change | what is changed | runs with an effect | right | seen in | date |"
        yield "|---|---|---|---|---|---|"
        for each in these:
            yield _row(each, answer_of(each))
        yield ""


def _row(change: Change, answer: Answer | None) -> str:
    if answer is None:
        return f"| `{change.name}` | {change.about} | not driven yet | | | |"
    right = "yes" if is_right(change, answer) else "**no**"
    where = ", ".join(answer["where"]) or "nothing"
    if answer["not_driven"]:
        where += f"; not driven: {', '.join(answer['not_driven'])}"
    told = f"{answer['effect']} of {answer['runs']}"
    return f"| `{change.name}` | {change.about} | {told} | {right} | {where} | {answer['date']} |"


def main() -> int:
    """Drive what is missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="the folder for the changed trees")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--minutes", type=float, default=15, help="begin no change after these")
    parser.add_argument("--page", action="store_true", help="write reports/digest.md")
    args = parser.parse_args()
    wanted = [each for each in changes() if not args.only or each.name in args.only]
    if unknown := {*args.only} - {each.name for each in wanted}:
        parser.error(f"no change: {', '.join(sorted(unknown))}. Use a name of changes.json.")
    if args.page:
        PAGE.write_text("\n".join(page()), encoding="utf-8")
        return 0
    if args.folder is None:
        parser.error("no folder for the trees. Use --folder FOLDER.")
    args.folder.mkdir(parents=True, exist_ok=True)
    drive(wanted, args.folder.resolve(), time.monotonic() + 60 * args.minutes)
    found = [(each, answer_of(each)) for each in wanted]
    if any(answer is not None and not is_right(each, answer) for each, answer in found):
        return 1
    return 3 if any(answer is None for _, answer in found) else 0


if __name__ == "__main__":
    sys.exit(main())
