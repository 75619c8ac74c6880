"""Nothing in a file is executed, and the files of users are opened in one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = sorted(path.name for path in (ROOT / "src" / "kvproof").iterdir() if path.is_symlink())

EXECUTE = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"),
    *("code", "codeop", "runpy", "yaml", "jsonpickle"),
}
"""Modules whose data can be code."""

EXECUTE_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
"""Functions that run a text, where they are not methods: `model.eval` of Z3 is another one."""

OPEN_CALLS = {"open", "fdopen"}
OPEN_METHODS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "fdopen", "mkstemp"),
    *("mkdtemp", "NamedTemporaryFile", "TemporaryFile", "TemporaryDirectory", "copyfile", "copy2"),
    *("copytree", "move", "tofile", "fromfile", "savez", "memmap", "loadtxt", "savetxt", "parse"),
}
"""Names of functions and methods that open a file themselves."""

OPENED = {
    "model/files": "the one place",
    "cli/streams.py": "opens the null device where a standard stream is closed",
    "cli/own_code.py": "reads the code of kvproof itself, for its fingerprint",
    "live/reproducer/template.py": "text of generated files, which make a config.json for vLLM",
    "gate/source/probes.py": "parses what Python's own loader has read of vLLM",
    "gate/source/units.py": "parses what `model/files` has read: `ast.parse` takes a text",
    "gate/search/side.py": "keeps what a process prints, in a temporary file",
    "cli/gate_side.py": "writes to pipes",
    "cli/sample.py": "makes a temporary folder for the trace that a process of its own replays",
    "cli/connector_name.py": "parses what `model/files` has read: `ast.parse` takes a text",
    "connectors/alone.py": "makes a temporary folder for the plan that a process of its own plays",
    "connectors/episode.py": "makes a temporary folder for the files of a connector under test",
    "connectors/listeners.py": "reads the list that Linux has of the files a process has mapped",
    "live/build.py": "makes a temporary folder of its own, for the config.json that vLLM reads",
}
"""The files of the product that open files, and why."""


def calls(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The object and the name of each call; the object is empty for a plain function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield "", node.func.id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield ast.unparse(node.func.value), node.func.attr


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").split(".")[0]


def executes(text: str) -> list[str]:
    """What in a program can run data as code."""
    tree = ast.parse(text)
    found = [name for name in imported(tree) if name in EXECUTE]
    for owner, name in calls(tree):
        if name in EXECUTE_CALLS and owner in ("", "builtins"):
            found.append(name)
    return found + ["numpy.load"] * ("allow_pickle=True" in text)


def opens(text: str) -> list[str]:
    """The calls in a program that open files."""
    found = []
    for owner, name in calls(ast.parse(text)):
        plain = not owner and name in OPEN_CALLS
        if plain or (owner and name in OPEN_METHODS):
            found.append(f"{owner}.{name}".strip("."))
    return found


def product() -> dict[str, str]:
    """The files of the product with their texts."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    paths += sorted((ROOT / "src" / "kvproof").glob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def allowed(path: str) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in OPENED)


def test_nothing_is_executed() -> None:
    texts = product()
    assert len(texts) > 400
    found = {path: names for path, text in texts.items() if (names := executes(text))}
    assert found == {
        "gate/source/outcomes.py": ["compile"],  # it reads the jumps of the code
        "gate/source/probes.py": ["compile"],  # of vLLM, which Python then imports
    }


def test_files_are_opened_in_one_place() -> None:
    texts = product()
    found = {path: names for path, text in texts.items() if (names := opens(text))}
    assert {path: names for path, names in found.items() if not allowed(path)} == {}
    used = {place for place in OPENED for path in found if path.startswith(place)}
    assert used == set(OPENED), "an exception that is not needed"


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import marshal as m",
        "def f():\n    import yaml",
        "eval(x)",
        "import builtins\nbuiltins.exec(x)",
        "__import__(x)",
        "numpy.load(x, allow_pickle=True)",
    ],
)
def test_what_executes_is_seen(text: str) -> None:
    assert executes(text)


@pytest.mark.parametrize(
    "text",
    ["open(x)", "Path(x).read_text()", "os.open(x, 0)", "p.open('w')", "tempfile.mkdtemp()"],
)
def test_what_opens_is_seen(text: str) -> None:
    assert opens(text)
