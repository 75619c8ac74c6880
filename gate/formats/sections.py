"""The parts of an answer, in the order in which each reader is given them: what is introduced, what
became of base's defects, what costs more, what was changed and what was not run.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvproof.gate.formats import sentences as words
from kvproof.model.counted import counted
from kvproof.reports.gate_output import Gate, GateFinding


class Section(NamedTuple):
    """A part of the answer: its name, what its title says beside, lines of one text each, and
    findings that are told in full."""

    name: str
    about: str
    lines: Sequence[str] = ()
    findings: Sequence[GateFinding] = ()


def sections(gate: Gate) -> Iterator[Section]:
    """The parts that have something to say."""
    of = {kind: words.of_kind(gate, kind) for kind in words.KINDS}
    watched = counted(gate.watched, "watched run")
    executed = f"what each belongs to, and how many of {watched} executed what is changed in it"
    every = (
        Section("introduced", "on head, and not on base", findings=of["introduced"]),
        Section(
            "mended",
            "on base; head takes the same run to its end without it",
            [words.names(of["mended"])] if of["mended"] else (),
        ),
        Section(
            "not comparable",
            "on base; head does not take the run that shows it",
            [*map(words.parting, of["not comparable"])],
        ),
        Section(
            "costs",
            "head does the same with more, and a good scheduler may do so",
            [*map(words.cost, gate.costs)],
            of["costs"],
        ),
        Section(
            "lost",
            "kvproof drives base by these names, and head does not have them",
            [*map(words.lost, gate.lost)],
        ),
        Section("changed functions", executed, [*map(words.function, gate.functions)]),
        Section("not run", "", [*map(words.plain, gate.not_run)]),
    )
    yield from (each for each in every if each.lines or each.findings)


def rows(gate: Gate, finding: GateFinding, *, here: bool = False) -> list[tuple[str, str]]:
    """What is told of a finding, for a reader on this machine (`here`) or on another: labels and
    texts."""
    excuses = f"{words.named(finding.excuses)}; base needs no such excuse here"
    every = (
        ("must be true", words.must_be_true(finding)),
        ("found", words.plain(finding.sentence)),
        ("how grave", words.grave(finding)),
        ("and with it", words.named(finding.also)),
        ("check", words.check(finding)),
        ("excuse", excuses if finding.excuses else ""),
        ("where", words.where(finding.places)),
        (RUN, words.run_of(finding) if finding.events else ""),
        ("reproducer", words.reproducer(finding.reproducer) if finding.reproducer else ""),
        (REPLAY, words.replay(gate, finding, here=here) or ""),
    )
    return [(label, text) for label, text in every if text]


RUN, REPLAY = "shortest run", "replay it"
"""The labels of the text before a run, and of a command."""
