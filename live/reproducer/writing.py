"""A finding's trace as a pytest file in vLLM's own terms: one template, with the events as
statements and one assertion.

The statements are first run on base and on head, and what vLLM shows after each is compared. What
differs, and is nearest to the finding, is asserted. A file is kept only if it fails on head and
passes on base.
"""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from kvproof.invariants.registry import CHECKS
from kvproof.live.reproducer import choosing
from kvproof.live.reproducer.choosing import Claim, Observed
from kvproof.live.reproducer.running import RanFile
from kvproof.live.reproducer.statements import (
    VARIABLES,
    Writer,
    making,
    running_on,
    unsupported,
)
from kvproof.model.events import describe
from kvproof.model.files.folders import made_folder, part_of
from kvproof.model.files.reading import read_text
from kvproof.model.files.writing import write_fresh, write_new
from kvproof.model.finding import Finding
from kvproof.model.traces.trace import Trace

TEMPLATE = Path(__file__).parent / "template.py"

CONSTANTS = "\n\nTOKEN, DRAFT"
"""The text that follows the imports of the template."""

TRIES_MAX = 3
"""The largest number of assertions that are tried."""

WIDTH = 88

RUN = "python -m pytest --noconftest -p no:cacheprovider"


class BothTrees(Protocol):
    """Base and head, in this order, each in a process that has imported it."""

    def observed(self, file: Path) -> tuple[Observed, Observed]:
        """The values that both trees show after each statement of a file."""

    def tested(self, file: Path) -> tuple[RanFile, RanFile]:
        """The outcome of a test on both trees."""


class Draft(NamedTuple):
    """A trace as statements, before the assertion is chosen. `made` has the statements that make
    the engines, and `engines` the variable of each engine. Each of the `statements` has a
    comment."""

    finding: Finding
    engines: dict[str, str]
    made: list[str]
    statements: list[tuple[str, str]]


def write(trace: Trace, trees: BothTrees, folder: Path, name: str) -> Path | str:
    """Write `test_NAME.py` into a folder. Returns its path, or the reason where no file fails on
    head and passes on base. Raises UsageError where the file cannot be written."""
    draft = drafted(trace)
    if isinstance(draft, str):
        return draft
    stem = "test_" + re.sub(r"\W", "_", name)
    with part_of(made_folder(folder) / name) as scratch:
        file = scratch / "observe.py"
        write_new(file, observing(draft))
        base, head = trees.observed(file)
        if why := head.error or base.error:
            return why
        if not base.seen:
            return f"the statements do not run on base ({base.raised})"
        if why := choosing.departs(trace.events, draft.engines, head):
            return why
        why = "no difference between head and base can be seen in vLLM's own terms"
        engine = draft.engines.get(draft.finding.about.engine, "")
        claims = choosing.claims(draft.finding, engine, base, head)
        for number, claim in enumerate(claims[:TRIES_MAX]):
            text = generated(draft, claim, stem)
            file = scratch / f"{stem}_{number}.py"
            write_new(file, text)
            on_base, on_head = trees.tested(file)
            if (on_head.outcome, on_base.outcome) == ("fails", "passes"):
                return write_fresh(folder, stem, ".py", text)
            why = f"the file {on_head.outcome} on head and {on_base.outcome} on base"
            why += f" ({on_head.why or on_base.why})"
    return why


def drafted(trace: Trace) -> Draft | str:
    """The statements of a trace, or why there are none."""
    cluster = trace.cluster
    if trace.finding is None:
        return "the trace has no finding"
    if why := unsupported(cluster):
        return why
    writer = Writer(cluster)
    statements = [(writer.statement(each), describe(each)) for each in trace.events]
    statements.append((running_on(cluster), "All that can finish finishes."))
    engines = {each.name: VARIABLES[each.role] for each in cluster.engines}
    made = [making(cluster, each) for each in cluster.engines]
    return Draft(trace.finding, engines, made, statements)


def observing(draft: Draft) -> str:
    """A file with a function that runs the statements and shows all engines after each."""
    shown = ", ".join(f"{each}=shown({each})" for each in draft.engines.values())
    lines = [*draft.made]
    for code, _ in draft.statements:
        lines += [code, f"show({shown})"]
    return _program("observe(tmp_path: Path, show: Callable[..., None])", lines)


def generated(draft: Draft, claim: Claim, stem: str) -> str:
    """The whole file."""
    lines = [*draft.made]
    for code, comment in draft.statements[: claim.after + 1]:
        lines += [*_wrapped(f"# {comment}", "# "), *[code] * bool(code)]
    lines += _assertion(claim)
    check = CHECKS.get(draft.finding.invariant)
    must = check.name if check else draft.finding.invariant
    test = re.sub(r"\W", "_", draft.finding.invariant)
    origin = f" ({check.origin})" if check and "vllm#" in check.origin else ""
    said = [*_wrapped(f'"""What must be true: {_prose(must)}{origin}.'), ""]
    said += [*_wrapped(f"What happens: {_prose(draft.finding.sentence)}."), ""]
    said += [f"Run: {RUN} {stem}.py", '"""', "", ""]
    return "\n".join(said) + _program(f"test_{test}(tmp_path: Path)", lines)


def _assertion(claim: Claim) -> list[str]:
    """The last lines of the test. For a statement that must not raise they are a comment alone."""
    if not claim.path:
        return ["# The last statement must not raise."]
    engine, *keys = claim.path
    place = "".join(f"[{key!r}]" for key in keys)
    return [f"seen = shown({engine}){place}", f"assert seen == {claim.expected!r}, __doc__"]


def _program(function: str, lines: Sequence[str]) -> str:
    """The template, with a function after its imports."""
    text = read_text(TEMPLATE, "template of reproducers")
    imports, constants, rest = text[text.index("import ") :].partition(CONSTANTS)
    body = textwrap.indent("\n".join(lines), "    ")
    return f"{imports}\n\n\ndef {function} -> None:\n{body}\n{constants}{rest}"


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("\\", "/").replace('"""', "'''")


def _wrapped(text: str, following: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH - 4,
        subsequent_indent=following,
        break_long_words=False,
        break_on_hyphens=False,
    )
