"""Which functions a head changes: what does the same is not changed, and all else is, also where it
matters what a name stands for and in which order definitions run."""

from pathlib import Path

import pytest

from kvproof.gate.source.changes import unreached
from tests.packages import CORE, between, names

HEADER = '''
"""A module."""
import os
import re
from vllm.logger import init_logger
from vllm.utils import cdiv, helper
logger = init_logger(__name__)
LIMIT = 4

def first(a, b=1, *, c=None):
    total = a + b
    for each in range(total):
        total = cdiv(each, LIMIT)
    return total

def second(x):
    return x

class Thing(Base):
    size: int = 4

    def grow(self, by):
        self.size += by
        return helper(self.size)

    def shrink(self):
        self.size -= 1
'''


def both_ways(folder: Path, before: str, after: str, wanted: set[str]) -> None:
    assert names(folder / "there", before, after) == wanted
    assert names(folder / "back", after, before) == wanted


HARMLESS = {
    "docstring": ("    total = a + b\n", '    """Adds."""\n    total = a + b\n'),
    "comment": ("LIMIT = 4\n", "# how many\nLIMIT = 4  # four\n\n\n"),
    "annotations": ("def second(x):", "def second(x: int | None) -> 'int':"),
    "annotation of a local": ("    total = a + b", "    total: int = a + b"),
    "local": ("total", "summed"),
    "line breaks": ("total = a + b", "total = (\n        a\n        + b\n    )"),
    "carriage returns": ("\n", "\r\n"),
    "order of imports": ("import os\nimport re\n", "import re\nimport os\n"),
    "name of an import": ("cdiv, helper", "cdiv, helper as more", "helper(", "more("),
    "unused import goes": ("import re\n", ""),
    "import for a type checker": (
        "import re\n",
        "import re\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n",
    ),
    "log line": (
        "    return total\n",
        '    logger.info("total %s of %s", total, a)\n    return total\n',
    ),
    "log line under a condition": (
        "    return x\n",
        '    if x is None:\n        logger.info("no x")\n    return x\n',
    ),
    "no logger": (
        *("from vllm.logger import init_logger\n", ""),
        *("logger = init_logger(__name__)\n", ""),
    ),
    "decorator for a type checker": (
        *("import re\n", "import re\nfrom typing_extensions import override\n"),
        *("    def grow(", "    @override\n    def grow("),
    ),
    "pass": ("    return x\n", "    pass\n    return x\n"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_the_same_is_not_changed(name: str, tmp_path: Path) -> None:
    after = HEADER
    pairs = HARMLESS[name]
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in after
        after = after.replace(old, new)
    both_ways(tmp_path, HEADER, after, set())


def test_a_set_is_the_same_in_whatever_order_it_is_shown(tmp_path: Path) -> None:
    """One of numbers is shown in the order in which they came, and one of texts in an order that
    depends on the seed of hashes."""
    before = "def first(x):\n    return x in {0, 8}\n"
    both_ways(tmp_path, before, before.replace("{0, 8}", "{8, 0}"), set())


def test_a_name_may_be_missing_that_is_imported(tmp_path: Path) -> None:
    """A new one may not exist; one that nobody used is not missed."""
    after = HEADER.replace("cdiv, helper", "cdiv, helper, nothing")
    assert names(tmp_path / "there", HEADER, after) == {"<module>"}
    assert names(tmp_path / "back", after, HEADER) == set()


CHANGED = {
    "constant": ("a + b", "a + 1", {"first"}),
    "kind of a constant": ("b=1", "b=1.0", {"first"}),
    "default that is no longer": ("c=None", "c", {"first"}),
    "name of a parameter": (
        "def second(x):\n    return x",
        "def second(y):\n    return y",
        {"second"},
    ),
    "decorator": ("def second", "@cache\ndef second", {"second"}),
    "other local": ("return total", "return each", {"first"}),
    "base class": ("Thing(Base)", "Thing(Other)", {"<class Thing>"}),
    "field": ("size: int = 4", "size: int = 5", {"<class Thing>"}),
    "annotation of a field": ("size: int", "size: float", {"<class Thing>"}),
    "constant of the module": ("LIMIT = 4", "LIMIT = 5", {"<module>"}),
    "what a name stands for": (
        "from vllm.utils import",
        "from vllm.other import",
        {"first", "Thing.grow"},
    ),
    "used import goes": ("cdiv, helper", "helper", {"first"}),
    "import that may fail": ("import re\n", "import re\nimport torch\n", {"<module>"}),
    "import of everything": ("import re\n", "import re\nfrom re import *\n", {"<module>"}),
    "log line that may raise": (
        "    return x\n",
        '    logger.info("x is %s", x.value)\n    return x\n',
        {"second"},
    ),
    "log line with an effect": (
        "    return x\n",
        '    logger.info("x is %s", x := 1)\n    return x\n',
        {"second"},
    ),
    "condition that may raise": (
        "    return x\n",
        '    if x.value is None:\n        logger.info("no value")\n    return x\n',
        {"second"},
    ),
    "another logger": (
        "    return x\n",
        '    logger = x\n    logger.info("none")\n    return x\n',
        {"second"},
    ),
    "no log call": ("    return x\n", '    log.info("none")\n    return x\n', {"second"}),
    "async": ("def second", "async def second", {"second"}),
    "new function": ("def second", "def third():\n    pass\n\ndef second", {"third"}),
    "function that is defined again": (
        "class Thing",
        "def second(x):\n    return x\n\nclass Thing",
        {"second"},
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_may_do_something_else_is_changed(name: str, tmp_path: Path) -> None:
    old, new, wanted = CHANGED[name]
    assert old in HEADER
    both_ways(tmp_path, HEADER, HEADER.replace(old, new), wanted)


PAIRS = {
    "annotations of a decorated function may be read": (
        "@register\ndef f(x: int): return x",
        "@register\ndef f(x: float): return x",
        {"f"},
    ),
    "a property has no use for annotations": (
        "class A:\n    @property\n    def f(self) -> int: return 1",
        "class A:\n    @property\n    def f(self) -> float: return 1",
        set(),
    ),
    "a decorator may register in order": (
        "@register\ndef f(): pass\n@register\ndef g(): pass",
        "@register\ndef g(): pass\n@register\ndef f(): pass",
        {"<module>"},
    ),
    "a log call that may raise needs its logger": (
        "from vllm.logger import init_logger\nlogger = init_logger(__name__)\n"
        'def f(x): logger.info("x is %s", x.value)\ndef g(x): return x',
        'def f(x): logger.info("x is %s", x.value)\ndef g(x): return x',
        {"f"},
    ),
    "the base classes are no decorators": (
        "@a\nclass X(b): pass",
        "class X(a, b): pass",
        {"<class X>"},
    ),
    "a setter comes after its property": (
        "class A:\n @property\n def f(self): return 1\n @f.setter\n def f(self, x): pass",
        "class A:\n @f.setter\n def f(self, x): pass\n @property\n def f(self): return 1",
        {"A.f"},
    ),
    "a function that another statement uses has its place": (
        "def f(): pass\nx = f()\n",
        "x = f()\ndef f(): pass\n",
        {"<module>"},
    ),
    "two functions for two cases": (
        "if X:\n    def f(): return 1\nelse:\n    def f(): return 2",
        "if X:\n    def f(): return 2\nelse:\n    def f(): return 1",
        {"f"},
    ),
    "the case of a function": (
        "if X:\n    def f(): return 1",
        "if not X:\n    def f(): return 1",
        {"<module>"},
    ),
    "a local that a nested function shares": (
        "def f():\n n = 0\n def g():\n  nonlocal n\n  n += 1\n g()\n return n",
        "def f():\n m = 0\n def g():\n  nonlocal m\n  m += 1\n g()\n return m",
        set(),
    ),
    "a local that is one of the module": (
        "def f():\n    n = 0\n    return n",
        "def f():\n    global n\n    n = 0\n    return n",
        {"f"},
    ),
    "a local that is no longer one": (
        "def f():\n    n: int\n    return n",
        "def f():\n    return n",
        {"f"},
    ),
    "locals that are exchanged": (
        "def f():\n    a = 1\n    b = 2\n    return a - b",
        "def f():\n    a = 1\n    b = 2\n    return b - a",
        {"f"},
    ),
    "a variable of a comprehension": (
        "def f(x):\n    return {a: [b for b in a] for a in x if a}",
        "def f(x):\n    return {c: [a for a in c] for c in x if c}",
        set(),
    ),
    "what a comprehension reads": (
        "def f(x, y):\n    return [a for a in x]",
        "def f(x, y):\n    return [x for a in x]",
        {"f"},
    ),
    "an exception": (
        "def f():\n    try: g()\n    except E as e: h(e)",
        "def f():\n    try: g()\n    except E as error: h(error)",
        set(),
    ),
    "names that are looked at": (
        "def f():\n    a = 1\n    return locals()",
        "def f():\n    b = 1\n    return locals()",
        {"f"},
    ),
    "the names of an object, not of locals": (
        "def f():\n    a = g()\n    return vars(a), dir(a)",
        "def f():\n    b = g()\n    return vars(b), dir(b)",
        set(),
    ),
    "names that may be looked at": (
        "def f():\n    a = g()\n    return vars(*a)",
        "def f():\n    b = g()\n    return vars(*b)",
        {"f"},
    ),
    "an attribute in a local class": (
        "def f():\n    class C:\n        a = 1\n    return C",
        "def f():\n    class C:\n        b = 1\n    return C",
        {"f"},
    ),
    "a relative import": (
        "from ..utils import f\ng = f",
        "from vllm.v1.utils import f\ng = f",
        set(),
    ),
    "a long number": (f"def f(): return 0x{'1' * 9999}", f"def f(): return 0x{'2' * 9999}", {"f"}),
    "an operator": ("def f(a, b): return a + b", "def f(a, b): return a - b", {"f"}),
    "a comparison": ("def f(a, b): return a < b", "def f(a, b): return a <= b", {"f"}),
    "an attribute": ("def f(a): return a.b", "def f(a): return a.c", {"f"}),
    "the name of an argument": ("def f(a): a(b=1)", "def f(a): a(c=1)", {"f"}),
    "a function of Python": ("def f(a): return max(a)", "def f(a): return min(a)", {"f"}),
    "a nested function": (
        "def f():\n    def g(): return 1\n    return g",
        "def f():\n    def g(): return 2\n    return g",
        {"f"},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_a_name_stands_for_and_the_order_of_definitions(name: str, tmp_path: Path) -> None:
    both_ways(tmp_path, *PAIRS[name])


def test_lines_are_those_of_head(tmp_path: Path) -> None:
    before = "\n\ndef f():\n    a = 1\n    b = 2\n    return a\n\ndef g():\n    return 1\n"
    after = "\n# more\n\ndef f():\n    a = 1\n    b = 3\n    return b\n\ndef h():\n    return 1\n"
    changes = between(tmp_path, {CORE: before}, {CORE: after})
    both = (*changes.accounting, *changes.others)
    assert [(each.file, each.name, each.line, each.kind) for each in both] == [
        (CORE, "f", 4, "changed"),
        (CORE, "g", 8, "removed"),
        (CORE, "h", 9, "new"),
    ]
    assert changes.accounting[0].key == f"{CORE}:f"


def test_no_run_need_reach_what_has_no_body(tmp_path: Path) -> None:
    before = (
        "class Base:\n"
        "    @abstractmethod\n"
        '    def put(self, key):\n        """Put it."""\n        raise NotImplementedError\n\n'
        "    def end(self, key):\n        pass\n\n"
        "    def get(self, key):\n        return key\n"
    )
    wider = before.replace("(self, key)", "(self, key, more)")
    stricter = before.replace("pass", "raise NotImplementedError")
    for after, left in ((wider, {"end", "get"}), (stricter, {"end"})):
        changes = between(tmp_path / str(len(left)), {CORE: before}, {CORE: after})
        found = unreached(changes.accounting, lambda _: ())
        assert {each.name for each in found} == {f"Base.{name}" for name in left}


@pytest.mark.parametrize(
    ("rest", "refuses"),
    [
        ("raise NotImplementedError('no')", True),
        ("return", False),
        ("raise ValueError('no')", False),
        ("key += 1\n    raise NotImplementedError", False),
    ],
)
def test_no_run_need_reach_a_refusal(rest: str, refuses: bool, tmp_path: Path) -> None:
    """It asserts something, and raises the exception that it is not implemented."""
    before = f"def put(key):\n    assert key, 'no key'\n    {rest}\n"
    changes = between(tmp_path, {CORE: before}, {CORE: before.replace("(key)", "(key, more)")})
    assert bool(unreached(changes.accounting, lambda _: ())) is not refuses


def test_a_run_that_calls_reaches_what_is_only_raised(tmp_path: Path) -> None:
    source = "def put(key):\n    if key:\n        raise ValueError('{}')\n    return key\n"
    both = (source.format(words) for words in ("no", "never"))
    (found,) = between(tmp_path, *({CORE: each} for each in both)).accounting
    assert not found.ran([])
    assert found.ran([found.key])
    assert not found.not_run([found.key])


@pytest.mark.parametrize("does", ["put(0)", "pass", "raise KeyError(key)"])
def test_a_call_does_not_reach_a_refusal_that_was_something_else(does: str, tmp_path: Path) -> None:
    """Nor where head does something instead of it."""
    source = (
        "def put(key):\n    for each in key:\n        if each:\n            {}\n        put(each)\n"
    )
    does, refuses = source.format(does), source.format("raise ValueError(key)")
    for number, both in enumerate(((does, refuses), (refuses, does))):
        (found,) = between(tmp_path / str(number), *({CORE: each} for each in both)).accounting
        assert not found.ran([found.key])
        assert found.ran(found.statements)


@pytest.mark.parametrize("does", ["pass", "raise NotImplementedError"])
def test_a_new_function_that_does_nothing_may_replace_one_that_does(
    does: str, tmp_path: Path
) -> None:
    before = "def use(x):\n    return x.put(1)\n\n"
    before += "class Base:\n    def put(self, key):\n        return key\n\nclass Child(Base):\n"
    new = f"    x = 1\n\n    def put(self, key):\n        {does}\n"
    both = {CORE: before + "    x = 1\n"}, {CORE: before + new}
    found = unreached(between(tmp_path, *both).accounting, lambda _: ())
    assert {each.name for each in found} == {"Child.put"}


WORKER = "class Worker(ABC):\n    x = 1\n"
PUT = "\n    @abstractmethod\n    def put(self, key): ...\n"
END = "\n    def end(self):\n        return\n"


@pytest.mark.parametrize(
    ("rest", "after", "left"),
    [
        ("", WORKER + PUT, set()),
        ("", WORKER + END, {"Worker.end"}),
        ("", WORKER.replace("(ABC)", "") + PUT, {"Worker.put"}),
        ("", WORKER + PUT.replace("...", "return 1"), {"Worker.put"}),
        (WORKER, WORKER.replace("Worker", "Other") + PUT + END, set()),
        (WORKER, WORKER.replace("Worker(ABC)", "Other(Worker)") + END, {"Other.end"}),
        (
            WORKER,
            WORKER.replace("Worker", "Other") + PUT + END + "        return 1\n",
            {"Other.end"},
        ),
    ],
)
@pytest.mark.parametrize("removed", [False, True])
def test_no_run_need_reach_a_declaration_that_one_side_has(
    rest: str, after: str, left: set[str], removed: bool, tmp_path: Path
) -> None:
    """It cannot be run, or no class had or has another function in its place."""
    use = "def use(x):\n    return x.put(1), x.end()\n\n"
    files = {CORE: use + (rest or WORKER)}, {CORE: use + rest + after}
    changes = between(tmp_path, *reversed(files) if removed else files)
    found = unreached(changes.accounting, lambda _: ())
    assert {each.name for each in found if each.name.startswith(("Worker.", "Other."))} == left


def test_the_line_of_a_body_is_the_first_that_base_has_not(tmp_path: Path) -> None:
    before = "class A:\n    x = 1\n    def f(self):\n        return 1\n    y = 1\n"
    after = before.replace("return 1", "return 2").replace("y = 1", "y = 2")
    changes = between(tmp_path, {CORE: before}, {CORE: after})
    lines = {each.name: each.line for each in (*changes.accounting, *changes.others)}
    assert lines == {"A.f": 3, "<class A>": 5}
