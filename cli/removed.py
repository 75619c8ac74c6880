"""This module lists the commands and options that are gone, each with what does its work now.

A command line that names one is refused in two sentences, with exit code 2. An entry stays as long
as somebody may have the old name in a script.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvproof.model.errors import UsageError


class Removed(NamedTuple):
    """What has become of a command or an option, and what to use. Both go into a sentence."""

    now: str
    use: str


COMMANDS: Mapping[str, Removed] = {
    "matrix": Removed(
        "is gone: the tests ask it", "kvproof explore, sample and prove with --fault NAME"
    ),
    "invariants": Removed("is now a list of explain", "kvproof explain invariants"),
    "faults": Removed("is now a list of explain", "kvproof explain faults"),
    "configs": Removed(
        "is now a list of explain", "kvproof explain configs, or kvproof explain NAME --json"
    ),
    "coverage": Removed(
        "is gone: sample says which checks had nothing to judge",
        "kvproof sample --machine live --config NAME",
    ),
    "join": Removed("is now kvproof report with two records", "kvproof report P.jsonl D.jsonl"),
    "releases": Removed(
        "is now replay --releases, for one trace",
        "kvproof replay TRACE --releases, or kvproof gate to compare two releases",
    ),
    "remedies": Removed(
        "is now benchmarks/remedies.py", "python benchmarks/remedies.py in a clone of kvproof"
    ),
}
"""The commands that are gone."""

OPTIONS: Mapping[tuple[str, str], Removed] = {
    **{
        (command, "--explain"): Removed(
            "is gone: a list says what all words of a printed trace mean", "kvproof explain words"
        )
        for command in ("explore", "sample", "report")
    },
    ("sample", "--steps-covered"): Removed(
        "is gone: sample says which checks had nothing to judge",
        "kvproof sample --machine live --config NAME",
    ),
    ("explore", "--symmetry"): Removed(
        "is gone: it saved little, and every state is visited now", "kvproof explore without it"
    ),
    ("explore", "--checkpoint"): Removed(
        "is gone: a search of a preset takes seconds on the model and minutes on real vLLM",
        "kvproof explore without it, or kvproof campaign for a search that goes on another day",
    ),
    ("prove", "--witness"): Removed(
        "is gone: the explorer finds a run of each fault by itself", "kvproof explore --fault NAME"
    ),
    ("prove", "--traces"): Removed(
        "is gone with --witness: a proof has no trace", "kvproof explore --fault NAME --traces DIR"
    ),
    ("prove", "--certificates"): Removed(
        "is gone: nobody asked another solver", "kvproof prove --table FILE for what is proved"
    ),
    ("explore", "--graph"): Removed(
        "is gone: nobody looks at thousands of states", "kvproof report TRACE --html FILE for a run"
    ),
    ("explore", "--resume"): Removed(
        "is gone, because no search is kept in a file any more",
        "kvproof explore without it, or kvproof campaign --resume",
    ),
}
"""The options that are gone, by command and option, such as `("explore", "--symmetry")`."""


def refuse(arguments: Sequence[str]) -> None:
    """Raise UsageError where a command line names a command or an option that is gone."""
    if not arguments:
        return
    command, rest = arguments[0], arguments[1:]
    if command in COMMANDS:
        raise _error(f"kvproof {command}", COMMANDS[command])
    for word in rest:
        option = word.partition("=")[0]
        if (command, option) in OPTIONS:
            raise _error(f"kvproof {command} {option}", OPTIONS[command, option])


def _error(name: str, removed: Removed) -> UsageError:
    return UsageError(f"{name} {removed.now}. Use {removed.use}.")
