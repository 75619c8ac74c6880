"""In real code, every mutation of a function is seen, and no renamed local is."""

import ast
import builtins
import copy
from functools import cache
from pathlib import Path

import hypothesis
from hypothesis import strategies as st

from kvproof.gate.source import bodies, names
from kvproof.gate.source.units import Module

ROOT = Path(__file__).parent.parent
FOLDERS = ("live", "model/reference", "strategies/explorer", "reports")


EXAMPLES = 5
"""So many times as many as the profile says: one takes milliseconds."""


@cache
def corpus() -> list[ast.FunctionDef]:
    """The functions and methods of kvproof."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def is_seen(before: ast.FunctionDef, after: ast.FunctionDef) -> bool:
    """Whether a function is found to be changed."""
    texts = [ast.unparse(function).encode() for function in (before, after)]
    sides = [Module(text, "vllm.x", False) for text in texts]
    found = [name for name, _ in bodies.differing(*sides)]
    assert found in ([], [before.name])
    return bool(found)


def places(function: ast.FunctionDef) -> list[ast.AST]:
    """The nodes of a function that do something: no documentation, and no annotations."""
    found: list[ast.AST] = []
    stack: list[ast.AST] = [*function.body, *names.defaults(function.args)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.JoinedStr):
            continue
        found.append(node)
        if isinstance(node, ast.AnnAssign):
            stack.extend(filter(None, (node.target, node.value)))
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            stack.extend(node.body if isinstance(node.body, list) else [node.body])
        elif isinstance(node, ast.ClassDef):
            continue
        else:
            stack.extend(ast.iter_child_nodes(node))
    return found


def mutations(function: ast.FunctionDef) -> list[tuple[ast.AST, str]]:
    """What can be changed, and how."""
    found = [(function, "decorator")]
    for node in places(function):
        kind = type(node).__name__
        if kind in (
            "Constant",
            "BinOp",
            "Compare",
            "BoolOp",
            "Call",
            "keyword",
            "Attribute",
            "Return",
        ):
            found.append((node, kind))
        if kind == "Name" and isinstance(node, ast.Name) and hasattr(builtins, node.id):
            found.append((node, "builtin"))
        body = getattr(node, "body", None)
        if isinstance(body, list) and len(body) > 1:
            found.append((node, "order"))
    if len(function.body) > 2:
        found.append((function, "order"))
    return found


def mutate(node: ast.AST, how: str) -> None:
    """Change a node in place."""
    match node:
        case ast.FunctionDef() if how == "decorator":
            node.decorator_list.append(ast.Name("cache", ast.Load()))
        case _ if how == "order":
            body = node.body  # type: ignore[attr-defined]
            body[-2], body[-1] = body[-1], body[-2]
        case ast.Constant():
            node.value = "other" if node.value is None else None
        case ast.BinOp():
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        case ast.Compare():
            node.ops[0] = ast.LtE() if isinstance(node.ops[0], ast.Lt) else ast.Lt()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.Call():
            node.args.append(ast.Constant(1))
        case ast.keyword():
            node.arg = f"{node.arg}_x"
        case ast.Attribute():
            node.attr += "_x"
        case ast.Return():
            node.value = ast.Tuple([node.value or ast.Constant(None)], ast.Load())
        case ast.Name():
            node.id = "other_function"


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=EXAMPLES * hypothesis.settings().max_examples)
def test_every_mutation_is_seen(data: st.DataObject) -> None:
    before = data.draw(st.sampled_from(corpus()))
    after = copy.deepcopy(before)
    node, how = data.draw(st.sampled_from(mutations(after)))
    mutate(node, how)
    hypothesis.assume(ast.dump(before) != ast.dump(after))
    assert is_seen(before, after), how
