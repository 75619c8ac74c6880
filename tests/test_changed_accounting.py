"""Which changed functions belong to the accounting: those of the driven modules, and what they use
by name."""

from pathlib import Path

import pytest

from kvproof.gate.source.accounting import DRIVEN, Accounting, driven
from kvproof.gate.source.changes import changed
from kvproof.gate.source.files import Package
from tests.packages import CORE, package

FILES = {
    CORE: """
from typing import TYPE_CHECKING
from vllm.utils import cdiv
from vllm.utils.more import Tool, LIMIT
import vllm.envs as envs
import vllm.lazy
from vllm.model_executor.layer import width
if TYPE_CHECKING:
    from vllm.only_types import Typed

def f(x: "Typed"):
    from vllm.inside import local
    return cdiv(x) + local() + width() + LIMIT + envs.VLLM_USED + vllm.lazy.Late.size
""",
    "utils/__init__.py": "from .maths import *\nfrom .maths import ratio as cdiv\n",
    "utils/maths.py": "def ratio(): return helper()\ndef helper(): pass\ndef other(): pass\n",
    "utils/more.py": "class Tool(Base):\n def a(self): return deep()\nclass Base:\n x = 1\n"
    "LIMIT = 1\nOTHER = 2\ndef deep(): pass\ndef unused(): pass\n",
    "envs.py": "table = {'VLLM_USED': lambda: read('a'), 'VLLM_OTHER': lambda: parse('b')}\n"
    "def __getattr__(name): return table[name]()\ndef read(x): pass\ndef parse(x): pass\n",
    "lazy/__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "    from vllm.lazy.late import Late\ndef __getattr__(name): pass\n",
    "lazy/late.py": "class Late:\n size = 1\ndef other(): pass\n",
    "model_executor/layer.py": "from vllm.kernels import run\ndef width(): return run() + same()\n"
    "def same(): pass\n",
    "kernels.py": "def run(): pass\n",
    "only_types.py": "class Typed:\n x = 1\n",
    "inside.py": "def local(): pass\n",
    "v1/request.py": "def anything(): pass\n",
}


@pytest.mark.parametrize(
    ("file", "old", "new", "ours"),
    [
        ("utils/maths.py", "def helper(): pass", "def helper(): return 1", True),
        ("utils/maths.py", "def other(): pass", "def other(): return 1", False),
        ("utils/more.py", "LIMIT = 1", "LIMIT = 3", True),
        ("utils/more.py", "OTHER = 2", "OTHER = 3", False),
        ("utils/more.py", "OTHER = 2", "OTHER = 2\nprint(OTHER)", True),
        ("utils/more.py", "OTHER = 2", "OTHER = print()", True),
        ("envs.py", "read('a')", "read('c')", True),
        ("envs.py", "parse('b')", "parse('c')", False),
        ("envs.py", "'VLLM_OTHER': lambda: parse('b')", "'VLLM_NEW': 1", False),
        ("envs.py", "def parse(x): pass", "def parse(x): return x", False),
        ("envs.py", "return table[name]()", "return 1", True),
        ("only_types.py", "x = 1", "x = 2", False),
        ("kernels.py", "pass", "return 1", False),
        ("v1/request.py", "pass", "return 1", True),
    ],
)
def test_a_change_is_of_the_accounting(
    file: str, old: str, new: str, ours: bool, tmp_path: Path
) -> None:
    assert old in FILES[file]
    base = package(tmp_path / "base", FILES)
    head = package(tmp_path / "head", FILES | {file: FILES[file].replace(old, new)})
    for changes in (changed(base, head), changed(head, base)):
        assert bool(changes.accounting) is ours
        assert {each.file for each in (*changes.accounting, *changes.others)} == {file}


def test_what_only_base_uses_is_of_the_accounting(tmp_path: Path) -> None:
    changes = changed(
        package(tmp_path / "base", FILES),
        package(
            tmp_path / "head",
            FILES
            | {CORE: FILES[CORE].replace("local()", "0"), "inside.py": "def local(): return 1\n"},
        ),
    )
    assert {each.key for each in changes.accounting} == {f"{CORE}:f", "inside.py:local"}


def test_a_new_module_of_the_core_is_of_the_accounting(tmp_path: Path) -> None:
    base = package(tmp_path / "base", FILES)
    more = {
        "v1/core/new.py": "def f(): pass\nx = f()\n",
        "other.py": "class A:\n def m(self): pass\n",
    }
    changes = changed(base, package(tmp_path / "head", FILES | more))
    assert [(each.key, each.kind) for each in changes.accounting] == [
        ("v1/core/new.py:f", "new"),
        ("v1/core/new.py:<module>", "new"),
    ]
    assert [each.name for each in changes.others] == ["<class A>", "A.m", "<module>"]


def test_the_generated_version_is_not_of_the_accounting(tmp_path: Path) -> None:
    files = FILES | {CORE: "from vllm._version import version\nx = version\n"}
    base = package(tmp_path / "base", files | {"_version.py": "version = '1'\n"})
    head = package(tmp_path / "head", files | {"_version.py": "version = '2'\n"})
    changes = changed(base, head)
    assert changes.accounting == ()
    assert [each.key for each in changes.others] == ["_version.py:<module>"]


def test_modules_that_import_each_other(tmp_path: Path) -> None:
    files = {CORE: "from vllm.a import x\ny = x\n", "a.py": "from vllm.b import *\n"}
    files |= {
        "b.py": "from vllm.a import *\nfrom vllm.c import x\n",
        "c.py": "from vllm.b import x\n",
    }
    assert changed(package(tmp_path / "a", files), package(tmp_path / "b", files)).accounting == ()
    Accounting(Package(tmp_path / "a" / "vllm"))


def test_a_chain_of_thousands_of_imports(tmp_path: Path) -> None:
    files = {f"m{n}.py": f"from vllm.m{n + 1} import x\n" for n in range(3000)}
    files |= {CORE: "from vllm.m0 import x\ny = x\n", "m3000.py": "x = 1\n", "apart.py": "z = 1\n"}
    base = package(tmp_path / "base", files)
    head = package(tmp_path / "head", files | {"apart.py": "z = 2\n", "m3000.py": "x = 2\n"})
    assert [each.key for each in changed(base, head).accounting] == ["m3000.py:<module>"]


def test_of_a_module_of_constants_only_those_of_the_contract_count(tmp_path: Path) -> None:
    assert "envs.py" not in DRIVEN
    constants = {name for module, name in driven() if module == "vllm.envs"}
    assert constants
    rows = ", ".join(f"'{name}': lambda: read('a')" for name in sorted(constants))
    envs = FILES["envs.py"].replace("{", f"{{{rows}, ")
    files = {CORE: "x = 1\n", "envs.py": envs}
    used = Accounting(Package(package(tmp_path / "base", files))).used
    assert used["envs.py"] == {*constants, "__getattr__", "read"}
    for new in (envs.replace("read('a')", "read('c')"), FILES["envs.py"]):
        head = package(tmp_path / f"head{len(new)}", files | {"envs.py": new})
        changes = changed(tmp_path / "base" / "vllm", head)
        assert [each.key for each in changes.accounting] == ["envs.py:<module>"]
