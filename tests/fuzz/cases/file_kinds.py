"""What a path may be: a pipe, a folder, a device, a link to itself, a name of any bytes."""

import os
from collections.abc import Mapping
from random import Random

from tests.fuzz import case as kinds
from tests.fuzz.case import LIVE_SUMMARY, Case, Maker
from tests.fuzz.cases.surveys import cache
from tests.fuzz.material import PRESETS, traces

ODD: Mapping[str, Maker] = {
    "fifo": kinds.fifo,
    "folder": kinds.folder,
    "socket": kinds.unix_socket,
    "unreadable": kinds.unreadable,
    "loop": kinds.link_to("odd"),
    "dangling": kinds.link_to("nosuch"),
    "zero": kinds.link_to("/dev/zero"),
    "full": kinds.link_to("/dev/full"),
    "random": kinds.link_to("/dev/urandom"),
    "tty": kinds.link_to("/dev/tty"),
    "stdin": kinds.link_to("/dev/stdin"),
    "memory": kinds.link_to("/proc/self/mem"),
    "status": kinds.link_to("/proc/self/status"),
    "large": kinds.sparse(200 << 20),
    "huge": kinds.sparse(1 << 40),
    "read-only": kinds.read_only_folder,
}
"""Things that are no good input, and are not to be written to."""

NAMES = (
    "n" * 255,
    "n" * 256,
    "n" * 5000,
    "a/" * 3000 + "b",
    "\udcff\udcfe",
    "a\nb",
    "\x1b[31mred",
    "[red]",
    "[/red]",
    " ",
    "-",
    "--",
    "*",
    "~",
    "$HOME",
    "é",
    "名前",
    "a\u202eb",
    "",
    ".",
    "..",
    "/",
    "//",
    "nosuch/x",
    "file/x",
    "/dev/null",
    "/dev/stdin",
    "/proc/self/fd/1",
    "a" * 300 + "/x",
)
"""Names that are long, odd, or of no file."""

READERS: tuple[tuple[str, ...], ...] = (
    ("explore", "--states-max", "20", "--config"),
    ("sample", "--examples", "1", "--steps", "2", "--config"),
    ("replay", "--machine", "model", "--"),
    ("report", "--json", "--"),
    ("report", "--"),
    ("releases", "--releases", "0.32.0", "--cache", "cache", "--trace"),
    ("explore", "--config", "oversized", "--resume", "--checkpoint"),
    (LIVE_SUMMARY,),
)
"""Commands that read the file whose name follows."""

WRITERS: tuple[tuple[str, ...], ...] = (
    ("explore", "--config", "oversized", "--graph"),
    ("explore", "--config", "oversized", "--checkpoint"),
    ("explore", "--config", "pd-full", "--fault", "front_trim", "--traces"),
    ("explore", "--config", "pd-full", "--fault", "front_trim", "--json", "--traces"),
    ("prove", "--obligation", "trim_equal_counts", "--table"),
    ("prove", "--obligation", "trim_equal_counts", "--certificates"),
    ("gate", "--vllm", "tree", "--base", "tree", "--cache", "cache", "--junit"),
    ("releases", "--releases", "0.32.0", "--cache", "cache", "--picture"),
    ("releases", "--releases", "0.32.0", "--trace", "t.jsonl", "--cache"),
)
"""Commands that write to the path whose name follows."""

SUFFIXES = {"--graph": (".graphml", ".dot", ".svg", ".png", ".txt", ""), "--junit": (".xml", "")}
SUFFIXES |= {"--picture": (".svg", ".png", ".dot", ""), "--config": (".json", ".cfg", "")}
OTHER_SUFFIXES = ("", ".txt", ".bin")

HERE = ("paired_offsets_are_equal.jsonl", "../paired_offsets_are_equal.jsonl")
"""The trace where the folder of traces is the working folder, or that above it."""


def _with_suffix(random: Random, name: str, option: str) -> str:
    suffix = random.choice(SUFFIXES.get(option, OTHER_SUFFIXES))
    return name + suffix if name.strip("./") else name


def case(random: Random, key: str, number: int) -> Case:  # noqa: ARG001
    """A command that reads or writes something odd."""
    reads = random.randrange(5) < 3
    argv = random.choice(READERS if reads else WRITERS)
    files: dict[str, bytes | Maker] = {"file": b"mine", "t.jsonl": traces()[0]}
    if argv[0] == "releases":
        files |= cache()
    if argv[0] == "gate":
        files["tree/vllm/__init__.py"] = b"NAME = 1\n"
    invalid, kind = "", ""
    if random.randrange(2):
        kind = random.choice([*ODD])
        name = "odd" if kind == "loop" else _with_suffix(random, "odd", argv[-1])
        files[name] = ODD[kind]
        invalid = f"it is {kind}" if reads else ""
    elif random.randrange(4) == 0:
        name = _with_suffix(random, "taken", argv[-1])
        files[name] = b"mine"
    else:
        name = _with_suffix(random, random.choice(NAMES), argv[-1])
        if reads and random.randrange(2) and _can_be(name):
            files[name] = _good(argv)
    folder = kind in ("folder", "read-only")
    makes = not reads and (folder or name not in files) and _inside(name)
    outputs = (name.split("/")[0],) if makes else ()
    if argv[-1] == "--cache" and not reads:
        argv = ("explore", "--config", "oversized", "--graph")  # a new cache is filled for minutes
    here = Case(
        (*argv, name),
        files=files,
        outputs=(*outputs, *HERE, "cache"),
        replaces=("cache/surveys",),
        invalid=invalid,
        user=random.choice(("", "bound", "nameless")),
    )
    if argv == (LIVE_SUMMARY,):
        return here.more(argv=(name,), program=LIVE_SUMMARY, vllm="")
    return here


def _good(argv: tuple[str, ...]) -> bytes:
    """A good file for a command."""
    if "--config" in argv[-1:]:
        return (PRESETS / "oversized.json").read_bytes()
    return b"<testsuites/>" if argv == (LIVE_SUMMARY,) else traces()[0]


def _inside(name: str) -> bool:
    """Whether a name is of a path in the working folder."""
    return bool(name.strip("./")) and not name.startswith(("/", ".", "-"))


def _can_be(name: str) -> bool:
    """Whether a file may have this name."""
    parts = os.fsencode(name).split(b"/")
    return _inside(name) and len(parts) == 1 and len(parts[0]) <= 255
