"""The page of what the gate answered to planted changes."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kept import Answer
from benchmarks.planted import answers
from benchmarks.planted.chooser import KINDS
from benchmarks.planted.mistakes import Mistake, mistakes

HEAD = """# Planted changes of vLLM, and what the gate tells of them

Made by `python -m benchmarks.planted`. Each change is one of a few lines in vLLM 0.32.0: base is
vLLM as released, head has the change. A seed has drawn the functions among those that no finding,
no fault and no mistake of the tests names. No function was drawn for a change that takes back what
a pull request of vLLM has mended (it has a number), nor for one that decides otherwise. A gate's
budget is wall time (300 s where nothing else is said); beside its seconds stand those of a
processor that it got, where they were taken.
"""

ABOUT = {
    "losses": "Nothing breaks, and something is lost: hits, steps, events, room. Right is VIOLATED "
    "or COSTS.",
    "hidden": "Mistakes behind options, at boundaries and in removed statements. Right is "
    "VIOLATED, COSTS or UNKNOWN.",
    "policies": "Orders of eviction, victims, smaller chunks, logs, names. VIOLATED is wrong, but "
    "for a change that breaks a check after all.",
    "masked": "Mistakes where vLLM as released breaks checks already. Right is VIOLATED or COSTS.",
}

RIGHT = {
    "losses": {"VIOLATED", "COSTS"},
    "hidden": {"VIOLATED", "COSTS", "UNKNOWN"},
    "policies": {"COSTS", "UNKNOWN", "NO EFFECT", "SAMPLED", "UNCHANGED"},
    "masked": {"VIOLATED", "COSTS"},
}
"""The verdicts that are right for each kind."""


def write(path: Path) -> None:
    """Write the page."""
    lines = [HEAD]
    for kind in KINDS:
        lines += section(kind)
    path.write_text("\n".join(lines), encoding="utf-8")


def section(kind: str) -> Iterator[str]:
    """The lines of one kind."""
    planted = [mistake for mistake in mistakes() if mistake.kind == kind]
    ran = [(mistake, answer) for mistake in planted if (answer := answers.of(mistake))]
    yield f"## {kind.capitalize()}: {len(ran)} of {len(planted)} were run\n"
    yield f"{ABOUT[kind]}\n"
    if not ran:
        return
    yield f"{summary(ran)}\n"
    yield "| function | what is changed | verdict | told by | seconds (of a processor) | date |"
    yield "|---|---|---|---|---|---|"
    yield from (row(mistake, answer) for mistake, answer in ran)
    yield ""
    for mistake in planted:
        if mistake.breaks:
            yield (
                f"`{mistake.function.name}` does break `{mistake.breaks}`, which was looked at "
                f"after the answer: {mistake.shown}.\n"
            )


def summary(ran: list[tuple[Mistake, Answer]]) -> str:
    """How many answers are right, and how many there are of each verdict."""
    counts = Counter(answer["verdict"] for _, answer in ran)
    right = sum(is_right(mistake, answer) for mistake, answer in ran)
    each = ", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items()))
    back = [answer["verdict"] for mistake, answer in ran if mistake.mended]
    also = (
        f" Of {len(back)} that take a mend back, {back.count('VIOLATED')} are red." if back else ""
    )
    return f"**Right: {right} of {len(ran)}** ({each}).{also}"


def is_right(mistake: Mistake, answer: Answer) -> bool:
    """Whether the verdict is right for what the change does."""
    if mistake.breaks:
        return bool(answer["introduced"] == [mistake.breaks])
    return answer["verdict"] in RIGHT[mistake.kind]


def row(mistake: Mistake, answer: Answer) -> str:
    """The line of one planted change."""
    told = [f"`{check}`" for check in answer["introduced"][:3]] or answer["costs"][:2]
    told = told or [text.partition(", excused")[0] for text in answer["not_told"][:2]]
    processor = "" if answer["processor_s"] is None else f" ({answer['processor_s']:.0f})"
    function = f"`{mistake.function.name}`" + (f" ({mistake.mended})" if mistake.mended else "")
    return (
        f"| {function} | {mistake.about} | {answer['verdict']} | {', '.join(told)} "
        f"| {answer['seconds']:.0f}{processor} | {answer['date']} |"
    )
