"""`kvproof explain`: what a name stands for; without a name, the kinds of names, and of a kind the
list. The JSON of a preset is the cluster file that `--config` takes."""

import argparse
import json
from collections.abc import Collection, Iterator

from kvproof.cli.explanations import KINDS, THREAD, Explanation, explanations, random_cluster
from kvproof.cli.finish import finish
from kvproof.model.config.config_json import without_defaults
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS, cluster_named
from kvproof.reports.screen import say

CLUSTER = "random:"
"""What a cluster that a seed makes begins with."""

KEY = """A group is its kind and the number of tokens in a block; "window 2 (of 3)" has blocks of 2
tokens and a window of 3, and "eagle" has layers of a drafter."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof explain` to its parser."""
    parser.add_argument(
        "explained",
        nargs="*",
        metavar="NAME",
        help="a name that kvproof prints, vllm#NUMBER, random:SEED, or a kind of names "
        f"({', '.join(KINDS)}), of which all are listed (default: the kinds)",
    )


def run(args: argparse.Namespace) -> int:
    """Print what the name stands for. A finding and the fault that puts it into the model have the
    same name, and both are printed."""
    name = " ".join(args.explained)
    if not name:
        return _kinds(args)
    if name in KINDS:
        return _list(args, name)
    random = name.startswith(CLUSTER)
    if args.json and (random or name in CLUSTERS or name in LIVE_CLUSTERS):
        print(json.dumps(without_defaults(cluster_named(name)), indent=2))
        return 0
    found = (random_cluster(name),) if random else tuple(explanations(name))
    brief = THREAD.fullmatch(name) is not None
    return finish(
        args,
        0,
        lambda: {"explanations": found},
        lambda: _print_brief(found) if brief else _print(found),
    )


def _kinds(args: argparse.Namespace) -> int:
    """Print the kinds of names."""
    kinds = {name: {"says": kind.says, "names": len(kind.names())} for name, kind in KINDS.items()}

    def text() -> None:
        say("kvproof explain NAME says what a name stands for. These kinds have lists:")
        for name, kind in kinds.items():
            say(f"  kvproof explain {name:12} {kind['names']:4} {kind['says']}", hang=36)

    return finish(args, 0, lambda: {"kinds": kinds}, text)


def _list(args: argparse.Namespace, kind: str) -> int:
    """Print all names of a kind."""
    found = tuple(KINDS[kind].explain(name) for name in KINDS[kind].names())

    def text() -> None:
        for each in found:
            say(_with_origin(each.name, each))
            say(f"    {each.sentence}", hang=6)
            for line in each.scenario if KINDS[kind].whole else ():
                say(f"    {line}", hang=6)
        say()
        if kind == "configs":
            say(" ".join(KEY.split()), hang=1)
        say("kvproof explain NAME says more of one.")

    return finish(args, 0, lambda: {"explanations": found}, text)


def _with_origin(text: str, each: Explanation) -> str:
    """Return a text with the severity and the origin of what is explained, in brackets."""
    beside = ", ".join(filter(None, (each.severity, each.origin)))
    return f"{text} ({beside})" if beside else text


def _print_brief(explained: Collection[Explanation]) -> None:
    """Print the sentence of each explanation, and one command."""
    for number, each in enumerate(explained):
        if number:
            say()
        say(f"{each.name}: {_with_origin(each.kind, each)}")
        say(f"  {each.sentence}", hang=2)
        say(f"  See it: {each.see[0]}", hang=0)


def _print(explained: Collection[Explanation]) -> None:
    """Print all that is known of one name, or of a finding and its fault."""
    for number, each in enumerate(explained):
        if number:
            say()
        say(f"{each.name}: {_with_origin(each.kind, each)}")
        for text in (each.sentence, *each.scenario):
            say()
            say(f"  {text}", hang=2)
        say()
        for label, text in _more(each):
            say(f"{label}: {text}")
        for command in each.see:
            say(f"See it: {command}", hang=0)


def _more(each: Explanation) -> Iterator[tuple[str, str]]:
    if each.where:
        yield "Where", each.where
    lists = ("Breaks", each.breaks), ("Faults", each.faults), ("Findings", each.findings)
    for label, names in lists:
        if names:
            yield label, ", ".join(names)
    if each.page:
        yield "Page", each.page
