"""The environment: variables, the home folder, the width, the encoding and the standard streams."""

from random import Random

from tests.fuzz.case import Case
from tests.fuzz.material import traces
from tests.fuzz.mutations import as_json

NAMED = as_json(
    {
        "name": "名前",
        "engines": [{"name": "É[b]", "groups": [{"kind": "full", "block_size": 2}]}],
        "jobs": [{"name": "r[red]", "prompt": "é"}, {"name": "[/red]", "prompt": "éb"}],
    }
)
"""A good cluster with names that are not ASCII, or look like markup."""

COMMANDS = (
    ("explore", "--config", "own.json"),
    ("explore", "--config", "own.json", "--json"),
    ("explore", "--config", "own.json", "--fault", "double_free"),
    ("sample", "--config", "own.json", "--examples", "2", "--steps", "4"),
    ("prove", "--obligation", "trim_equal_counts"),
    ("report", "t.jsonl"),
    ("replay", "t.jsonl", "--machine", "model"),
    ("faults",),
    ("invariants",),
    ("configs",),
    ("configs", "--json"),
    ("remedies",),
    ("doctor",),
    ("--help",),
    ("--version",),
    ("gate", "--help"),
    ("nosuch",),
    ("explore", "--config", "é\udcff[b].json"),
)

VARIABLES: dict[str, tuple[str | None, ...]] = {
    "COLUMNS": ("20", "0", "1", "-5", "abc", "", "80", "100000", "9" * 30, "٣"),
    "LINES": ("0", "x"),
    "HOME": (None, "", "/nonexistent", "relative", "/dev/null", "{root}/home\udcff", "x" * 5000),
    "XDG_CACHE_HOME": (
        "",
        "relative",
        "/dev/null",
        "/proc/nosuch",
        "{root}/home/\udcff",
        "x" * 300,
    ),
    "TERM": ("dumb", "", "xterm-256color", "nosuch"),
    "NO_COLOR": ("1",),
    "FORCE_COLOR": ("1",),
    "PYTHON_COLORS": ("1",),
    "TMPDIR": ("/nonexistent", "", "\udcff"),
    "KVPROOF_PROFILE": ("nonsense", "", "nightly", "\udcff"),
    "KVPROOF_REQUIRE_LIVE": ("1", "", "x"),
    "PATH": (None, "", "\udcff"),
}

AT_START: dict[str, tuple[str | None, ...]] = {
    "LANG": ("C", "POSIX", "nosuch", "de_DE.ISO-8859-1", ""),
    "LC_ALL": ("C", "tr_TR.UTF-8", "xx"),
    "PYTHONIOENCODING": ("ascii", "latin-1", "ascii:strict", "utf-16", "utf-8:surrogateescape"),
    "PYTHONUTF8": ("0", "1"),
    "PYTHONWARNINGS": ("error", "always"),
    "PYTHONDEVMODE": ("1",),
    "PYTHONSAFEPATH": ("1",),
    "PYTHONOPTIMIZE": ("2",),
}
"""Variables that Python reads when it starts."""

IN_A_PROCESS = 6
"""One in so many cases is a process of its own: they take long."""


def case(random: Random, key: str, number: int) -> Case:  # noqa: ARG001
    """A command in an odd environment."""
    process = random.randrange(IN_A_PROCESS) == 0
    table = AT_START | VARIABLES if process else VARIABLES
    names = random.sample(sorted(AT_START if process else table), random.choice((0, 1, 2)))
    names += random.sample(sorted(VARIABLES), random.choice((0, 1, 1, 2)))
    broken = random.choice(("out", "out", "err", "none", "none", "none"))
    how = random.choice(("full", "closed"))
    good = traces()
    argv = random.choice(COMMANDS)
    return Case(
        argv,
        files={"own.json": NAMED, "t.jsonl": good[random.randrange(len(good))]},
        outputs=("kvproof-traces",),
        environment={name: random.choice(table[name]) for name in names},
        stdout=how if broken == "out" else "file",
        stderr=how if broken == "err" else "file",
        encoding=random.choice(("utf-8", "utf-8", "ascii", "latin-1")),
        process=process and argv != ("doctor",),  # it would import the real vLLM
        user=random.choice(("", "", "", "bound", "nameless")),
    )
