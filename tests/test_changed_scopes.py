"""Which functions a head changes, where it matters what a name stands for and in which order
definitions run."""

from pathlib import Path

import pytest

from tests.packages import names

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
}


@pytest.mark.parametrize("name", PAIRS)
def test_one_pair(name: str, tmp_path: Path) -> None:
    before, after, wanted = PAIRS[name]
    assert names(tmp_path / "there", before, after) == wanted
    assert names(tmp_path / "back", after, before) == wanted
