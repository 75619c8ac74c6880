"""Python source in the layout of `ruff format`, for lines of 88 characters."""

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 88


def literal(value: Any) -> str:
    """A value of plain data as Python source. A text has double quotes, unless only single quotes
    need no escape."""
    if isinstance(value, str):
        text = repr(value)
        return text if '"' in value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal, value)) + "]"
    return repr(value)


def call(start: str, arguments: Sequence[str], end: str = ")", indent: int = 0) -> list[str]:
    """The lines of `start`, arguments and `end`: in one line, or all arguments in a second line, or
    each in a line of its own."""
    space = " " * indent
    one = f"{space}{start}{', '.join(arguments)}{end}"
    if len(one) <= WIDTH or not arguments:
        return [one]
    inner = f"{space}    {', '.join(arguments)}"
    if len(inner) <= WIDTH:
        return [space + start, inner, space + end]
    return [space + start, *(f"{space}    {one}," for one in arguments), space + end]


def comment(text: str, indent: int = 0) -> list[str]:
    """The lines of a comment."""
    start = " " * indent + "# "
    wrapped = textwrap.wrap(" ".join(text.split()), WIDTH - len(start), break_long_words=False)
    return [start + line for line in wrapped]


def prose(text: str, opens: bool = False) -> list[str]:
    """The lines of a paragraph in a docstring; with `opens`, the first follows three quotes."""
    clean = " ".join(text.split()).replace("\\", "/").replace('"""', "'''")
    if clean.endswith('"'):
        clean += "."
    start = "   " if opens else ""
    lines = textwrap.wrap(
        clean, WIDTH, initial_indent=start, break_long_words=False, break_on_hyphens=False
    )
    return [lines[0].strip(), *lines[1:]]


def message(text: str, indent: int) -> list[str]:
    """The lines of a long text in parentheses, without the parentheses."""
    space, width = " " * indent, WIDTH - indent
    one = literal(text)
    if len(one) <= width:
        return [space + one]
    parts = textwrap.wrap(text, width - 4, break_long_words=False, break_on_hyphens=False)
    return [space + literal(part + " ") for part in parts[:-1]] + [space + literal(parts[-1])]


def assigned(name: str, value: Any, indent: int) -> list[str]:
    """The lines that give a variable a value of plain data."""
    space = " " * indent
    one = f"{space}{name} = {literal(value)}"
    if len(one) <= WIDTH or not isinstance(value, list | tuple):
        return [one]
    return [f"{space}{name} = [", *_items(value, indent + 4), f"{space}]"]


def _items(values: Sequence[Any], indent: int) -> list[str]:
    space, lines = " " * indent, []
    for value in values:
        one = f"{space}{literal(value)},"
        if len(one) <= WIDTH or not isinstance(value, list | tuple):
            lines.append(one)
        else:
            lines += [space + "[", *_items(value, indent + 4), space + "],"]
    return lines


def imports(names: Mapping[str, str]) -> str:
    """The imports of names, each with its module: the standard library first. A module that is a
    name of itself is imported whole."""
    modules: dict[str, list[str]] = {}
    for name, module in names.items():
        modules.setdefault(module, []).append(name)
    blocks: tuple[list[str], list[str]] = [], []
    for whole in (True, False):
        for module, found in sorted(modules.items()):
            if (found == [module]) == whole:
                lines = [f"import {module}"] if whole else _imported(module, found)
                blocks[module.split(".")[0] not in sys.stdlib_module_names].extend(lines)
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _import_order(name: str) -> tuple[int, str]:
    """Constants first, then classes, then functions, as isort has them."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def _imported(module: str, found: Sequence[str]) -> list[str]:
    names = sorted(found, key=_import_order)
    one = f"from {module} import {', '.join(names)}"
    if len(one) <= WIDTH:
        return [one]
    return [f"from {module} import (", *(f"    {name}," for name in names), ")"]
