"""Which functions a head changes: what does the same is not changed, and all else is."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from kvproof.live.source.changes import Changes, Function, changed
from tests.packages import CORE, package

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


def between(tmp_path: Path, base: Mapping[str, str], head: Mapping[str, str]) -> Changes:
    return changed(package(tmp_path / "base", base), package(tmp_path / "head", head))


def names(tmp_path: Path, before: str, after: str) -> set[str]:
    """The changed functions of a file of the accounting."""
    texts = dedent(before), dedent(after)
    changes = between(tmp_path, {CORE: texts[0]}, {CORE: texts[1]})
    assert changes.others == ()
    assert all(each.file == CORE for each in changes.accounting)
    assert all(1 <= each.line <= each.end_line for each in changes.accounting)
    return {each.name for each in changes.accounting}


HARMLESS = {
    "docstring": ("    total = a + b\n", '    """Adds."""\n    total = a + b\n'),
    "docstring of the module": ('"""A module."""', '"""The module."""'),
    "comment": ("LIMIT = 4\n", "# how many\nLIMIT = 4  # four\n\n\n"),
    "annotations": ("def second(x):", "def second(x: int | None) -> 'int':"),
    "annotation of a constant": ("LIMIT = 4", "LIMIT: int = 4"),
    "annotation of a local": ("    total = a + b", "    total: int = a + b"),
    "local": ("total", "summed"),
    "local of a loop": ("each", "item"),
    "line breaks": ("total = a + b", "total = (\n        a\n        + b\n    )"),
    "carriage returns": ("\n", "\r\n"),
    "order of imports": ("import os\nimport re\n", "import re\nimport os\n"),
    "order of imported names": ("import cdiv, helper", "import helper, cdiv"),
    "name of an import": ("cdiv, helper", "cdiv, helper as more", "helper(", "more("),
    "unused import goes": ("import re\n", ""),
    "unused import comes": ("import re\n", "import re\nimport sys\n"),
    "import for annotations": ("import re\n", "import re\nfrom typing import Any\n"),
    "import for a type checker": (
        "import re\n",
        "import re\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n",
    ),
    "log line": (
        "    return total\n",
        '    logger.info("total %s of %s", total, a)\n    return total\n',
    ),
    "log line of an f-string": ("    return x\n", '    logger.debug(f"x is {x}")\n    return x\n'),
    "log line with an attribute": (
        "        self.size += by\n",
        '        self.size += by\n        logger.warning("now %d", self.size)\n',
    ),
    "log line that is logged once": (
        "    return x\n",
        '    logger.info_once("second was called")\n    return x\n',
    ),
    "log line under a condition": (
        "    return x\n",
        '    if x is None:\n        logger.info("no x")\n    return x\n',
    ),
    "no logger": (
        *("from vllm.logger import init_logger\n", ""),
        *("logger = init_logger(__name__)\n", ""),
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
    assert names(tmp_path / "there", HEADER, after) == set()
    assert names(tmp_path / "back", after, HEADER) == set()


def test_a_name_may_be_missing_that_is_imported(tmp_path: Path) -> None:
    """A new one may not exist; one that nobody used is not missed."""
    after = HEADER.replace("cdiv, helper", "cdiv, helper, nothing")
    assert names(tmp_path / "there", HEADER, after) == {"<module>"}
    assert names(tmp_path / "back", after, HEADER) == set()


def test_functions_and_methods_may_be_moved(tmp_path: Path) -> None:
    first, second, thing = (HEADER.index(name) for name in ("def first", "def second", "class"))
    moved = HEADER[:first] + HEADER[second:thing] + HEADER[first:second] + HEADER[thing:]
    assert names(tmp_path / "functions", HEADER, moved) == set()
    grow, shrink = HEADER.index("    def grow"), HEADER.index("    def shrink")
    moved = HEADER[:grow] + HEADER[shrink:] + "\n" + HEADER[grow:shrink]
    assert names(tmp_path / "methods", HEADER, moved) == set()


CHANGED = {
    "constant": ("a + b", "a + 1", {"first"}),
    "kind of a constant": ("b=1", "b=1.0", {"first"}),
    "operator": ("a + b", "a - b", {"first"}),
    "called function": ("cdiv(each", "helper(each", {"first"}),
    "default value": ("b=1", "b=2", {"first"}),
    "default that is no longer": ("c=None", "c", {"first"}),
    "name of a parameter": (
        "def second(x):\n    return x",
        "def second(y):\n    return y",
        {"second"},
    ),
    "decorator": ("def second", "@cache\ndef second", {"second"}),
    "other local": ("return total", "return each", {"first"}),
    "order of statements": (
        "        self.size += by\n        return",
        "        return",
        {"Thing.grow"},
    ),
    "attribute": ("self.size -= 1", "self.sizes -= 1", {"Thing.shrink"}),
    "base class": ("Thing(Base)", "Thing(Other)", {"<class Thing>"}),
    "field": ("size: int = 4", "size: int = 5", {"<class Thing>"}),
    "annotation of a field": ("size: int", "size: float", {"<class Thing>"}),
    "constant of the module": ("LIMIT = 4", "LIMIT = 5", {"<module>"}),
    "new statement of the module": ("LIMIT = 4", "LIMIT = 4\nprint(LIMIT)", {"<module>"}),
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
    "log line that calls": (
        "    return x\n",
        '    logger.info("x is %s", x())\n    return x\n',
        {"second"},
    ),
    "log line that formats": (
        "    return x\n",
        '    logger.info(f"{x:d}")\n    return x\n',
        {"second"},
    ),
    "log line with an effect": (
        "    return x\n",
        '    logger.info("x is %s", x := 1)\n    return x\n',
        {"second"},
    ),
    "log line that cannot be kept": (
        "    return x\n",
        "    logger.info_once(x)\n    return x\n",
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
    "removed function": ("def second(x):\n    return x\n", "", {"second"}),
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
    after = HEADER.replace(old, new)
    assert names(tmp_path / "there", HEADER, after) == wanted
    assert names(tmp_path / "back", after, HEADER) == wanted


MORE = {
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
    "locals that become one": (
        "def f():\n    a = 1\n    b = 2\n    return a",
        "def f():\n    a = 1\n    a = 2\n    return a",
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
    "a parameter of a nested function": (
        "def f():\n    return lambda a: a",
        "def f():\n    return lambda b: b",
        {"f"},
    ),
    "an attribute in a local class": (
        "def f():\n    class C:\n        a = 1\n    return C",
        "def f():\n    class C:\n        b = 1\n    return C",
        {"f"},
    ),
    "a method that belongs to another class": (
        "class A:\n    def f(self): pass\nclass B:\n    pass",
        "class A:\n    pass\nclass B:\n    def f(self): pass",
        {"A.f", "B.f"},
    ),
    "a relative import": (
        "from ..utils import f\ng = f",
        "from vllm.v1.utils import f\ng = f",
        set(),
    ),
    "the first statement of a module": ("def f(): pass", "def f(): pass\nX = 1", {"<module>"}),
    "a long number": (f"def f(): return 0x{'1' * 9999}", f"def f(): return 0x{'2' * 9999}", {"f"}),
}


@pytest.mark.parametrize("name", MORE)
def test_one_pair(name: str, tmp_path: Path) -> None:
    before, after, wanted = MORE[name]
    assert names(tmp_path / "there", before, after) == wanted
    assert names(tmp_path / "back", after, before) == wanted


def test_lines_are_those_of_head(tmp_path: Path) -> None:
    before = "\n\ndef f():\n    a = 1\n    b = 2\n    return a\n\ndef g():\n    return 1\n"
    after = "\n# more\n\ndef f():\n    a = 1\n    b = 3\n    return b\n\ndef h():\n    return 1\n"
    changes = between(tmp_path, {CORE: before}, {CORE: after})
    assert changes.accounting == (
        Function(CORE, "f", 4, 7, "changed", ((6, 7),)),
        Function(CORE, "h", 9, 10, "new", ((9, 9),)),
        Function(CORE, "g", 8, 9, "removed"),
    )
    assert changes.accounting[0].key == f"{CORE}:f"


def test_a_removed_line_is_shown_at_the_next_one(tmp_path: Path) -> None:
    before = "def f(a):\n    a += 1\n    a += 2\n    return a\n"
    after = "def f(a):\n    a += 1\n    return a\n"
    changes = between(tmp_path, {CORE: before}, {CORE: after})
    assert changes.accounting == (Function(CORE, "f", 1, 3, "changed", ((3, 3),)),)


def test_equal_trees(tmp_path: Path) -> None:
    files = {CORE: HEADER, "models/big.py": "x = 1"}
    assert between(tmp_path, files, files) == Changes((), ())
