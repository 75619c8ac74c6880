"""Write the self-contained form of a reproducer: one file that needs vLLM, torch and pytest.

    python -m findings.report NAME FILE

The helpers that it uses are copied into the file, with the fixture that applies its patch if it has
one. The file is what `issue.md` calls attached. Exit code: 0 it is written, 2 there is no such
finding.
"""

import argparse
import ast
import functools
import sys
from collections import defaultdict
from pathlib import Path

FOLDER = Path(__file__).parent
HELPERS = "findings.helpers."
RUN = """
Run: pytest --noconftest test_{name}.py
On 0.32.0 {fails}.
"""

Imports = dict[str, set[str]]
"""The names that are imported, by module. A module that is imported whole has the name ''."""


def self_contained(name: str) -> str:
    """Return the text of a finding's reproducer without an import of `findings`."""
    text = (FOLDER / name / f"test_{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    imports: Imports = defaultdict(set)
    helpers: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(HELPERS):
            for alias in node.names:
                _copy(str(node.module), alias.name, helpers, imports)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            _note(node, {_bound(alias) for alias in node.names}, imports)
    own = [node for node in tree.body[1:] if not isinstance(node, ast.Import | ast.ImportFrom)]
    has_patch = any(isinstance(node, ast.FunctionDef) and node.name == "patch" for node in own)
    fixture = [_definition(FOLDER / "conftest.py", "code")] if has_patch else []
    fails = "[released] fails and [patched] passes" if has_patch else "it fails"
    body = "\n".join(text.splitlines()[_first_line(own[0]) - 1 :])
    doc = f'"""{str(ast.get_docstring(tree)).rstrip()}\n{RUN.format(name=name, fails=fails)}"""'
    parts = [_written(imports), *helpers.values(), *fixture, body]
    return doc + "\n\n" + "\n\n\n".join(parts) + "\n"


def _copy(module: str, name: str, helpers: dict[str, str], imports: Imports) -> None:
    """Copy a helper, after what it uses of its module and of other helpers."""
    if name in helpers:
        return
    path = FOLDER / "helpers" / f"{module.removeprefix(HELPERS)}.py"
    defined = _definitions(path)
    helpers[name] = ""
    used = {node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)}
    for node in _statements(path):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(HELPERS):
            for alias in node.names:
                if alias.name in used:
                    _copy(str(node.module), alias.name, helpers, imports)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            _note(node, used, imports)
    for other in defined:
        if other in used and other != name:
            _copy(module, other, helpers, imports)
    del helpers[name]
    helpers[name] = _definition(path, name)


@functools.cache
def _statements(path: Path) -> list[ast.stmt]:
    """Return the statements of a module."""
    return ast.parse(path.read_text(encoding="utf-8")).body


@functools.cache
def _definitions(path: Path) -> dict[str, ast.stmt]:
    """Return the functions, classes and constants of a module by name."""
    found: dict[str, ast.stmt] = {}
    for node in _statements(path):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found[ast.unparse(node.targets[0])] = node
        elif isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = node
    return found


def _definition(path: Path, name: str) -> str:
    """Return the text of a function, a class or a constant."""
    node = _definitions(path)[name]
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[_first_line(node) - 1 : node.end_lineno])


def _first_line(node: ast.stmt) -> int:
    """Return the line of a statement, or of its first decorator."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _bound(alias: ast.alias) -> str:
    """Return the name that an import makes."""
    return alias.asname or alias.name.partition(".")[0]


def _note(node: ast.Import | ast.ImportFrom, used: set[str], imports: Imports) -> None:
    """Note those imports of a statement whose names are used."""
    for alias in node.names:
        if _bound(alias) not in used:
            continue
        told = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
        if isinstance(node, ast.ImportFrom):
            imports[str(node.module)].add(told)
        else:
            imports[told].add("")


def _written(imports: Imports) -> str:
    """Return the import statements: first those of Python, then the others."""
    groups: tuple[list[str], list[str]] = ([], [])
    for module, names in sorted(imports.items(), key=lambda each: ("" not in each[1], each[0])):
        group = groups[module.partition(".")[0] not in sys.stdlib_module_names]
        group += [f"import {module}"] if "" in names else []
        if told := sorted(names - {""}):
            line = f"from {module} import {', '.join(told)}"
            wrapped = "".join(f"    {name},\n" for name in told)
            group.append(line if len(line) <= 100 else f"from {module} import (\n{wrapped})")
    return "\n\n".join("\n".join(group) for group in groups if group)


def main() -> int:
    """Write the file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a folder of findings/ with a reproducer")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    if not (FOLDER / args.name / f"test_{args.name}.py").exists():
        parser.error(f"there is no finding {args.name!r}. Use the name of a folder in findings/.")
    args.file.parent.mkdir(parents=True, exist_ok=True)
    args.file.write_text(self_contained(args.name), encoding="utf-8")
    print(args.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
