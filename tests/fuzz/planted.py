"""A program that does what its argument says, all of it wrong: the test of the fuzzer runs it."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path


def _two_objects() -> None:
    print('{"exit_code": 0}\n{}')


def _refusal_of_one_sentence() -> None:
    print("No.", file=sys.stderr)
    sys.exit(2)


def _raise() -> None:
    raise KeyError("name")


WRONG: dict[str, tuple[str, Callable[[], object]]] = {
    "raises": ("a traceback: KeyError: 'name'", _raise),
    "hangs": ("it hangs", lambda: time.sleep(600)),
    "dies": ("exit code -9", lambda: os.kill(os.getpid(), 9)),
    "exits": ("exit code 70", lambda: sys.exit(70)),
    "believes": ("exit code 0 for an input that is not valid", lambda: None),
    "says": ("EXHAUSTED for an input", lambda: print("EXHAUSTED")),
    "refuses": ("not two sentences", _refusal_of_one_sentence),
    "prints": ("not one JSON object", _two_objects),
    "escapes": ("control character", lambda: print("\x1b[31mred")),
    "allocates": ("MiB of memory", lambda: bytearray(400 << 20)),
    "overwrites": ("'work/mine' was changed", lambda: Path("mine").write_text("yours")),
    "removes": ("'work/mine' was removed", lambda: Path("mine").unlink()),
    "chmods": ("'work/mine' was changed", lambda: Path("mine").chmod(0o600)),
    "leaves": ("'home/left' was left", lambda: Path("../home/left").write_text("x")),
    "tears": ("it has no end", lambda: Path("out.jsonl").write_text('{"step": 1}\n')),
    "cuts": ("is not whole", lambda: Path("out.xml").write_text("<testsuites>")),
    "parts": (
        "a temporary name",
        lambda: Path("out").mkdir() or Path("out/x.part").write_text("x"),
    ),
}
"""What it does, by name, and what the judge must say about it."""

if __name__ == "__main__":
    WRONG[sys.argv[1]][1]()
