"""This module lists the commands and options that are gone, each with what does its work now.

A command line that names one is refused in two sentences, with exit code 2. An entry stays as long
as somebody may have the old name in a script.
"""

from collections.abc import Mapping, Sequence

from kvproof.model.errors import UsageError

GONE: Mapping[str, str] = {
    "matrix": "is gone: the tests ask it. Use kvproof explore, sample and prove with --fault NAME.",
    "invariants": "is now a list of explain. Use kvproof explain invariants.",
    "faults": "is now a list of explain. Use kvproof explain faults.",
    "configs": "is now a list of explain. Use kvproof explain configs, or kvproof explain NAME "
    "--json.",
    "connector --replay": "is now kvproof replay, for a plan that names its connector. Use kvproof "
    "replay FILE.",
    "coverage": "is gone: sample says which checks had nothing to judge. Use kvproof sample "
    "--machine live --config NAME.",
    "join": "is now kvproof report with two records. Use kvproof report P.jsonl D.jsonl.",
    "releases": "is now replay --releases, for one trace. Use kvproof replay TRACE --releases, or "
    "kvproof gate to compare two releases.",
    "remedies": "is now benchmarks/remedies.py. Use python benchmarks/remedies.py in a clone of "
    "kvproof.",
    **{
        f"{command} --explain": "is gone: a list says what all words of a printed trace mean. Use "
        "kvproof explain words."
        for command in ("explore", "sample", "report")
    },
    "sample --steps-covered": "is gone: sample says which checks had nothing to judge. Use kvproof "
    "sample --machine live --config NAME.",
    "explore --symmetry": "is gone: it saved little, and every state is visited now. Use kvproof "
    "explore without it.",
    "explore --checkpoint": "is gone: a search of a preset takes seconds on the model and minutes "
    "on real vLLM. Use kvproof explore without it, or kvproof campaign for a search that goes on "
    "another day.",
    "explore --resume": "is gone, because no search is kept in a file any more. Use kvproof "
    "explore without it, or kvproof campaign --resume.",
    "explore --graph": "is gone: nobody looks at thousands of states. Use kvproof report TRACE "
    "--html FILE for a run.",
    "prove --witness": "is gone: the explorer finds a run of each fault by itself. Use kvproof "
    "explore --fault NAME.",
    "prove --traces": "is gone with --witness: a proof has no trace. Use kvproof explore --fault "
    "NAME --traces DIR.",
    "prove --certificates": "is gone: nobody asked another solver. Use kvproof prove --table FILE "
    "for what is proved.",
}
"""By command, or by command and option, what has become of it and what to use, after its name."""


def refuse(arguments: Sequence[str]) -> None:
    """Raise UsageError where a command line names a command or an option that is gone."""
    command, *rest = arguments or ("",)
    for word in ("", *rest):
        name = f"{command} {word.partition('=')[0]}".strip()
        if name in GONE:
            raise UsageError(f"kvproof {name} {GONE[name]}")
