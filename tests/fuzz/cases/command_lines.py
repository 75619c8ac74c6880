"""Command lines: every command with every option that its help names, and odd values."""

import os
import re
from functools import cache
from random import Random

from hypothesis import strategies as st

from tests.fuzz.case import Case
from tests.fuzz.material import SMALL, drawn, traces
from tests.fuzz.mutations import ODD_TEXTS
from tests.fuzz.run_case import run

OPTION = re.compile(r"^  (--[a-z-]+)(?:[ =]([A-Z{|][^\s]*))?", re.MULTILINE)
COMMAND = re.compile(r"^ {2,4}([a-z]+)  ", re.MULTILINE)

NUMBERS = (
    "0",
    "-1",
    "1",
    "2",
    "007",
    "1.5",
    "1e3",
    "nan",
    "inf",
    "٣",
    "１",
    "1_0",
    " 3 ",
    "9" * 5000,
)
NAMES = (
    *SMALL,
    "pd-ful",
    "random:1",
    "random:-1",
    "random:",
    "random:²",
    "random:" + "9" * 5000,
    "front_trim",
    "double_free",
    "trim_equal_counts",
    "pool_adds_up",
    "hang",
    "block_size=2",
    "block_size=²",
    "=1",
    "model",
    "0.32.0",
    "1.2",
    "new",
    "new.svg",
    "new.dot",
    "t.jsonl",
)
SAFE: dict[str, tuple[str, ...]] = {
    "explore": ("--config", "oversized", "--states-max", "40"),
    "sample": ("--config", "oversized", "--examples", "1", "--steps", "4"),
    "prove": ("--obligation", "trim_equal_counts", "--timeout-s", "1"),
    "replay": ("t.jsonl",),
    "report": ("t.jsonl",),
}
"""Options that make a command quick. Other commands run without, or are not run to their end."""

SLOW = ("matrix", "gate", "releases")
"""Commands that take seconds: their command lines have an option that does not exist."""

LONG = ("--examples", "--steps", "--states-max", "--episodes", "--timeout-s", "--memory-max")
"""Options of which a large value makes a command slow."""


@cache
def options(command: str) -> tuple[str, ...]:
    """The options that the help of a command names."""
    said = run(Case((command, "--help"))).stdout.decode()
    return tuple(sorted({found[0] for found in OPTION.findall(said)} - {"--help"}))


@cache
def commands() -> tuple[str, ...]:
    """The commands that the help of the program names."""
    return tuple(sorted(set(COMMAND.findall(run(Case(("--help",))).stdout.decode()))))


def _value(option: str) -> st.SearchStrategy[str]:
    """An odd value, or a good one of some option; no large number where it would take long."""
    numbers = [n for n in NUMBERS if len(n) < 99 or option not in LONG]
    texts = [text for text in ODD_TEXTS if "\0" not in text and "\ud800" not in text]
    odd = st.sampled_from((*texts, "\udcff", "--", "-", "@t.jsonl"))
    if option in LONG:
        return st.sampled_from(numbers) | odd
    return st.sampled_from(NAMES) | st.sampled_from(numbers) | odd


@st.composite
def a_command_line(draw: st.DrawFn) -> tuple[str, ...]:
    """A command with up to four options."""
    command = draw(st.sampled_from(commands()))
    known = options(command)
    argv: list[str] = [*SAFE.get(command, ())]
    for option in draw(st.lists(st.sampled_from(known), max_size=4)):
        values = draw(st.sampled_from((0, 1, 1, 1, 1, 2)))
        argv += [option] + [draw(_value(option)) for _ in range(values)]
    if command in SLOW:
        argv.append(draw(st.sampled_from(("--nosuch", "--seed=x", "--jsons", "--config"))))
    if command == "explore" and "--states-max" not in argv[4:]:
        argv += ["--states-max", "40"]
    how = draw(st.sampled_from(("as it is",) * 6 + ("shuffled", "twice", "help", "odd", "bare")))
    if how == "shuffled":
        argv = [*draw(st.permutations(argv))]
    elif how == "twice":
        argv += argv[-2:]
    elif how == "help":
        argv.insert(0, "--help")
    elif how == "odd":
        argv.insert(draw(st.integers(0, len(argv))), draw(_value("")))
    elif how == "bare":
        return tuple(argv)
    return (command, *argv)


def case(random: Random, key: str, number: int) -> Case:  # noqa: ARG001
    """A command line in a folder that has a trace."""
    argv = drawn(a_command_line(), key, number)
    outputs = ("kvproof-traces", *(name for name in argv if not name.startswith(("/", "-"))))
    return Case(argv, files={"t.jsonl": traces()[0], "file": b"mine"}, outputs=_new(outputs))


def _new(names: tuple[str, ...]) -> tuple[str, ...]:
    """What a command line may make: the files and folders that it names."""
    paths = {os.path.normpath(name) for name in names if name}
    tops = {path if path.startswith("..") else path.split("/")[0] for path in paths}
    return tuple(sorted(tops - {"t.jsonl", "file", ".", ".."}))
