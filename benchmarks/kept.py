"""What the scripts that take hours keep, so that one that was stopped continues: the gates that
they run, and a table of answers."""

import fcntl
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


def gate(*options: object, traces: Path) -> Answer:
    """The answer of a gate with these options, in a process of its own, and the seconds that it
    had of a processor. A gate without an answer ends this program."""
    command = [sys.executable, "-m", "kvproof", "gate", "--json", "--traces", traces, *options]
    before = processor_s()
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if not ran.stdout or ran.returncode in {2, 130, 143}:
        sys.exit(f"{traces.name}: {ran.stderr.strip() or ran.returncode}")
    answer: Answer = json.loads(ran.stdout)
    return answer | {"processor_s": round(processor_s() - before, 1)}


def processor_s() -> float:
    """The processor time of all programs that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write(file: Path, what: Any) -> None:
    """Write a file of JSON, whole or not at all."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(what, indent=1) + "\n", encoding="utf-8")
    part.replace(file)


class Answers:
    """Answers in a file of JSON, by the name of what was asked. Each has a digest of that: where
    it has changed since, there is no answer."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def known(self) -> dict[str, Answer]:
        """All answers."""
        if not self.file.exists():
            return {}
        found: dict[str, Answer] = json.loads(self.file.read_text(encoding="utf-8"))
        return found

    def of(self, name: str, digest: str) -> Answer | None:
        """The answer to what has this name and this digest; None where there is none."""
        answer = self.known().get(name)
        return answer if answer and answer["digest"] == digest else None

    def keep(self, name: str, answer: Answer) -> None:
        """Keep an answer. Two runs may write at the same time."""
        with open(__file__, encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            write(self.file, dict(sorted((self.known() | {name: answer}).items())))
