"""The outcomes of changed conditions: from which line to which other a changed condition may lead.

A statement may be executed in each run, and its condition may always have one value. Then its
change may have done nothing yet. Each line of a condition has outcomes of its own: for a long
condition these are the outcomes of its parts. They are read from the jumps of the compiled file, as
a trace function sees them. Those that only raise an exception or only log are none, nor are those
that end on the line of the condition.
"""

import dis
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import CodeType

from kvproof.gate.source.statements import Lines, of
from kvproof.gate.source.units import ERRORS, Module

MARK = "?"
"""Before the line to which a condition leads, in a key."""


def key_of(file: str, sign: int, line: int, to: int) -> str:
    """The key of an outcome, by the line of the condition, which is negative on base, and the line
    to which it leads, which is negative at the end of a function."""
    return f"{file}:@{sign * line}{MARK}{to}"


def place_of(key: str) -> tuple[int, int]:
    """The two lines of an outcome."""
    line, _, to = key.rpartition(":@")[2].partition(MARK)
    return int(line), int(to)


class Outcomes:
    """The outcomes of the conditions of a file: pairs of lines, counted from 1."""

    def __init__(self, module: Module) -> None:
        self._all: dict[int, set[int]] = {}
        self._statements = [lines for unit in module.units.values() for lines in of(module, unit)]
        self._text = module.lines
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = compile("\n".join(module.lines), "vllm", "exec", dont_inherit=True)
                found = [*_jumps(code)]
        except ERRORS:
            return
        for line, to in found:
            self._all.setdefault(line, set()).add(to)

    def of(self, changed: Collection[int]) -> Iterator[tuple[int, int]]:
        """The outcomes of these lines."""
        for line in sorted(changed):
            yield from ((line, to) for to in sorted(self._all.get(line, ())) if self._does(to))

    def _does(self, line: int) -> bool:
        """Whether a line does more than raise an exception or log; a negative one is an end."""
        if line < 0:
            return True
        here = [lines for lines in self._statements if line in lines]
        return bool(here) and not self._raises(max(here, key=lambda lines: lines.start))

    def _raises(self, lines: Lines) -> bool:
        return self._text[lines.start - 1].split()[:1] == ["raise"]


def _jumps(code: CodeType) -> Iterator[tuple[int, int]]:
    """Where each line with a conditional jump may lead."""
    instructions = [each for each in dis.get_instructions(code) if _real(each)]
    places = {each.offset: number for number, each in enumerate(instructions)}
    for number, each in enumerate(instructions):
        line = _line(each)
        if line is not None and _is_condition(each):
            both = (number + 1, places.get(each.argval, number + 1))
            ends = {_to(code, instructions, places, there, line) for there in both}
            yield from ((line, to) for to in ends if to is not None and len(ends) > 1)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _jumps(constant)


def _to(
    code: CodeType,
    instructions: Sequence[dis.Instruction],
    places: Mapping[int, int],
    number: int,
    line: int,
) -> int | None:
    """The next line after this place, or the end of the function, as a negative number; None where
    another condition is first, on the same line."""
    for _ in instructions:
        here = instructions[number]
        there = _line(here)
        if there is not None and there != line:
            return there
        if here.opname.startswith("RETURN"):
            return -code.co_firstlineno
        if _is_condition(here):
            return None
        number = places.get(here.argval, -1) if "JUMP" in here.opname else number + 1
        if not 0 <= number < len(instructions):
            return None
    return None


def _is_condition(instruction: dis.Instruction) -> bool:
    """Whether it goes on at one of two places, by a value."""
    return "JUMP" in instruction.opname and "IF_" in instruction.opname


def _real(instruction: dis.Instruction) -> bool:
    """Whether an instruction does something. (`NOT_TAKEN` marks a branch for `sys.monitoring`.)"""
    return instruction.opname not in ("CACHE", "NOT_TAKEN")


def _line(instruction: dis.Instruction) -> int | None:
    positions = instruction.positions
    return positions.lineno if positions else None
