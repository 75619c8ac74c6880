"""The generated file: its parts, put together."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvproof.live.reproducer.facts import allocations, received_events
from kvproof.live.reproducer.layout import call, comment, imports
from kvproof.live.reproducer.library import library, needed, used
from kvproof.live.reproducer.pieces import NAMES, Piece, Writer
from kvproof.live.reproducer.settings import Settings
from kvproof.model.config import Cluster

FIXED = {
    "TOKEN": 'ord(".")',
    "DRAFT": 'ord("?")',
    "NIXL": '"vllm.distributed.kv_transfer.kv_connector.v1.nixl"',
    "FOR_DECODE": '{"do_remote_decode": True, "do_remote_prefill": False}',
    "SHAPE": '{"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}',
    "STATE": '{"shapes": ((2, 2),), "dtypes": (torch.float32,)}',
}
"""Constants that are the same in each file."""

TYPES = {"SHAPE": ": dict[str, Any]", "STATE": ": dict[str, Any]", "FOR_DECODE": ": dict[str, Any]"}


class Script(NamedTuple):
    """A test before it is text: `start` makes the schedulers, `pieces` follow the trace."""

    start: tuple[str, ...]
    pieces: tuple[Piece, ...]


def started(cluster: Cluster, writer: Writer, watches: bool) -> tuple[str, ...]:
    """The statements before the first event. With `watches`, the test notes the numbers of blocks
    that are predicted and taken."""
    start: list[str] = []
    for engine in cluster.engines:
        name = NAMES[engine.role]
        arguments = ["tmp_path", *writer.constants(engine.name, "make_scheduler")]
        start.append("\n".join(call(f"{name} = make_scheduler(", arguments, indent=4)))
        if engine.overlaps:
            start.append(f"    {writer.queue(engine)}: deque[Step] = deque()")
        if engine.kv_events:
            start.append(f"    {received_events(engine)} = listen({name})")
        if watches:
            start.append(f"    {allocations(engine)} = watch_allocations({name})")
    if cluster.disaggregated:
        start.append("    params: dict[str, Any] = {}")
    if cluster.follow_up_turns:
        start.append("    held: dict[str, Any] = {}")
    return tuple(start)


def body(made: Script, until: int, last: Sequence[str]) -> list[str]:
    """The statements up to and including this piece, with their comments, and then the `last`
    lines. A step is one statement where its output arrives at once."""
    pieces = [*made.pieces[: until + 1]]
    lines: list[str] = []
    while pieces:
        piece = pieces.pop(0)
        lines += comment(piece.comment, 4) if piece.comment else []
        if piece.whole and pieces and pieces[0].ends:
            lines.append(piece.whole)
            pieces.pop(0)
            continue
        named = "step" in _words("\n".join(last) if not pieces else pieces[0].source)
        named = named and not (pieces and pieces[0].step)
        lines.append(piece.source if named else piece.source.replace("    step = ", "    ", 1))
    lines += last
    words = _words("\n".join(lines))
    return [line for line in made.start if _variable(line) in words] + lines


def _words(source: str) -> set[str]:
    """The words of the statements, without comments."""
    code = (line for line in source.split("\n") if not line.lstrip().startswith("#"))
    return set(re.findall(r"\w+", "\n".join(code)))


def _variable(statement: str) -> str:
    return statement.split()[0].rstrip(":")


def text(settings: Settings, doc: Sequence[str], name: str, lines: Sequence[str]) -> str:
    """The whole file: docstring, imports, constants, functions and the test."""
    test = "\n".join([f"def test_{name}(tmp_path: Path) -> None:", *lines])
    top = '"""' + "\n".join(doc) + ("\n" if len(doc) > 1 else "") + '"""'
    return f"{top}\n\n{header(settings, [test])}{test}\n"


def header(settings: Settings, sources: Sequence[str]) -> str:
    """The imports, constants and functions that these pieces of source use, with two empty lines
    at the end."""
    differ = next(iter(settings.of_engine.values()))
    connector = ["StoreConnector"] if "store" in settings.features else []
    found = needed([*sources, *connector], settings.features).values()
    functions = [with_parameters(source, differ) for source in found]
    names = {name for piece in (*functions, *sources) for name in used(piece)}
    values: list[str] = []
    for name, value in reversed((FIXED | settings.constants).items()):
        if name in names:
            names |= used(value)
            values.insert(0, f"{name}{TYPES.get(name, '')} = {value}")
    modules = {name: module for name, module in library().modules.items() if name in names}
    parts = [imports(modules), "\n".join(values), *functions]
    first, *rest = [part for part in parts if part]
    return "\n\n".join([first, "\n\n\n".join(rest)]) + "\n\n\n"


def with_parameters(source: str, differ: Mapping[str, str]) -> str:
    """A function that gets constants in which the engines differ as parameters."""
    mine = {name: value for name, value in differ.items() if name in _words(source)}
    for name in mine:
        source = re.sub(rf"\b{name}\b", name.lower(), source)
    added = [f"{name.lower()}: {_type(value)}" for name, value in mine.items()]
    if not added:
        return source
    start, _, rest = source.partition("(")
    inner, _, rest = rest.partition(") -> ")
    result, _, rest = rest.partition(":\n")
    given = [one.strip() for one in re.split(r",\s*(?![^\[]*\])", inner) if one.strip()]
    first = [one for one in given if "=" not in one]
    parameters = [*first, *added, *given[len(first) :]]
    return "\n".join([*call(f"{start}(", parameters, f") -> {result}:"), rest])


def _type(value: str) -> str:
    return "str" if value[0] in "\"'" else "int" if value.isdigit() else "Any"
