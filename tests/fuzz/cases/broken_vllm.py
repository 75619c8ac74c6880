"""A vLLM that is installed and fails at import, or lacks all that kvproof needs."""

from random import Random

from tests.fuzz.case import REFUSED, UNKNOWN, Case
from tests.fuzz.material import traces

SOURCES = (
    "",
    "raise ImportError('a torchvision of another build')",
    "raise RuntimeError('operator torchvision::nms does not exist')",
    "raise AttributeError('module has no attribute')",
    "raise OSError(2, 'libcudart.so.12: cannot open shared object file')",
    "raise Exception('two\\nlines [red]')",
    "raise Exception()",
    "import nosuch_module",
    "def broken(:",
    "raise SystemExit(0)",
    "raise SystemExit('bye')",
    "class Odd(BaseException): pass\nraise Odd('odd')",
    "print('noise on standard output')\nraise ImportError('x')",
    "import sys\nsys.stderr.write('noise\\n')\nraise ImportError('x' * 5000)",
    "raise ImportError('caf\\xe9 \\x1b[31m')",
    "import warnings\nwarnings.warn('old')\n",
    "__version__ = 3\n",
)

COMMANDS = (
    ("sample", "--machine", "live", "--config", "oversized", "--examples", "1"),
    ("sample", "--machine", "live", "--config", "oversized", "--examples", "1", "--json"),
    ("replay", "t.jsonl", "--machine", "live"),
    ("replay", "t.jsonl", "--machine", "live", "--json"),
    ("coverage", "--config", "oversized", "--examples", "1"),
    ("coverage", "--config", "oversized", "--examples", "1", "--json"),
    ("doctor",),
    ("doctor", "--json"),
)
"""Commands that import vLLM."""


def case(random: Random, key: str, number: int) -> Case:  # noqa: ARG001
    """A command that imports such a vLLM: nothing it says is about vLLM."""
    return Case(
        random.choice(COMMANDS),
        files={"t.jsonl": random.choice(traces()[5:])},
        vllm=random.choice(SOURCES),
        invalid="there is no vLLM that works",
        refusals=(REFUSED, UNKNOWN),
    )
