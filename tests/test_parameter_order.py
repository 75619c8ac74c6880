"""One parameter order: the cluster or an engine's configuration, the state or an engine, the event
or a request, and the rest. Keyword-only parameters may stand in any order."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("model", "invariants", "strategies", "live", "reports", "cli")
REST = 6
PLACES = {
    "model.config": {"Cluster": 0, "EngineConfig": 1},
    "model.config.cluster": {"Cluster": 0},
    "model.config.engine": {"EngineConfig": 1},
    "model.state": {"State": 2, "Engine": 3, "Request": 5},
    "model.step": {"Step": 2},
    "model.machine": {"Machine": 2},
    "model.reference.scheduling.scheduler_step": {"SchedulerStep": 2},
    "model.reference.scheduling.greedy": {"Greedy": 2},
    "strategies.explorer.collapse": {"Parts": 2},
}
"""The place of each type. A step and a packed state hold states, and a machine has one."""
NO_EVENTS = ("Admit", "FinishLoad", "Compute", "Preempt", "Release", "Choice", "Lists")
"""What `events` has beside the events: the choices of a step, and lists of blocks."""
OF_VLLM = {"scheduler": 2, "live": 5}
"""The place of what vLLM gives: its type is `Any`."""
IN_LAMBDAS = {"cluster": 0, "c": 0, "cfg": 1, "state": 2, "s": 2, "begun": 3, "engine": 3}
IN_LAMBDAS |= {"event": 4, "e": 4, "request": 5}
EXCEPTIONS = {
    "model/phases.py": "`allowed` has the columns of the transition table, in its order",
    "strategies/sampling/workloads.py": "Hypothesis calls `jobs` with `draw` first",
}


def place(annotation: ast.expr, names: Mapping[str, str]) -> int:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return min(place(annotation.left, names), place(annotation.right, names))
    module, _, name = ast.unparse(annotation).rpartition(".")
    full = f"{names.get(module, module)}.{name}" if module else names.get(name, name)
    module, _, name = full.removeprefix("kvproof.").rpartition(".")
    is_event = module == "model.events" and name not in NO_EVENTS
    return 4 if is_event else PLACES.get(module, {}).get(name, REST)


def orders(tree: ast.Module, names: Mapping[str, str]) -> Iterator[tuple[int, str, list[int]]]:
    """The places of the positional parameters of each function, lambda and `Callable`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            typed = [p for p in (*node.args.posonlyargs, *node.args.args) if p.annotation]
            given = [OF_VLLM.get(p.arg, 0) * (ast.unparse(p.annotation) == "Any") for p in typed]
            own = [place(p.annotation, names) for p in typed]
            yield (
                node.lineno,
                node.name,
                [one or other for one, other in zip(given, own, strict=True)],
            )
        elif isinstance(node, ast.Lambda):
            places = [IN_LAMBDAS.get(p.arg.strip("_"), REST) for p in node.args.args]
            yield node.lineno, "lambda", places
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Callable":
            taken = getattr(node.slice, "elts", [None])[0]
            yield (
                node.lineno,
                "Callable",
                [place(each, names) for each in getattr(taken, "elts", ())],
            )


def out_of_order(path: str, source: str) -> list[str]:
    tree = ast.parse(source)
    own = "kvproof." + path.removesuffix(".py").replace("/", ".")
    names = {n.name: f"{own}.{n.name}" for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)):
        names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    found = []
    for line, name, places in orders(tree, names):
        if places != sorted(places):
            found.append(f"line {line}: {name}")
    return found


def test_parameters_stand_in_one_order() -> None:
    files = {str(p.relative_to(ROOT)): p for room in ROOMS for p in (ROOT / room).rglob("*.py")}
    found = {path: out_of_order(path, file.read_text()) for path, file in files.items()}
    assert {path: lines for path, lines in found.items() if lines and path not in EXCEPTIONS} == {}
    assert all(len(found[path]) == 1 for path in EXCEPTIONS)


@pytest.mark.parametrize(
    "wrong", ["e: Event, s: 's.State'", "n: int, e: Event", "e: s.Engine, c: C"]
)
def test_another_order_is_found(wrong: str) -> None:
    imports = "from kvproof.model.events import Event\nfrom kvproof.model import state as s\n"
    imports += "from kvproof.model.config import Cluster as C\n"
    assert out_of_order("model/f.py", f"{imports}def f({wrong}): ...\n") == ["line 4: f"]
    types = ", ".join(part.split(": ")[1] for part in wrong.split(", "))
    assert out_of_order("model/f.py", f"{imports}T = Callable[[{types}], int]\n")
