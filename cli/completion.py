"""`kvproof --print-completion SHELL`: the script that completes command lines.

It completes commands, options, the names of presets, faults, invariants, findings, obligations and
claims, and files where files are taken. The names are those of this kvproof: print it again after
an update.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")

CLUSTERS_FUNCTION = "_kvproof_clusters"

Build = Callable[[], argparse.ArgumentParser]


def add_option(parser: argparse.ArgumentParser, build: Build) -> None:
    """Add the option. `build` makes the parser with all commands and options."""

    class Print(argparse.Action):
        """Prints the script, and ends."""

        def __call__(
            self,
            parser: argparse.ArgumentParser,
            _namespace: argparse.Namespace,
            values: str | Sequence[Any] | None,
            _option: str | None = None,
        ) -> None:
            print(script(build(), str(values)))
            parser.exit()

    parser.add_argument(
        "--print-completion",
        choices=SHELLS,
        action=Print,
        help="print the script that completes command lines in this shell",
    )


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell. `parser` has all commands and options."""
    import shtab

    names = _names()
    files = {
        "files": (
            *("trace", "checkpoint", "graph", "junit", "sarif", "summary", "table"),
            *("prefill", "decode"),
        ),
        "folders": ("traces", "cache", "certificates", "vllm", "repo"),
    }
    presets = " ".join(names["config"])
    for action in _actions(parser):
        if action.dest in ("config", "show"):
            # tcsh completes one kind of word: presets, and no files.
            action.complete = {  # type: ignore[attr-defined]
                "bash": CLUSTERS_FUNCTION,
                "zsh": CLUSTERS_FUNCTION,
                "tcsh": f"({presets})",
            }
        elif action.dest in names:
            action.choices = names[action.dest]
        elif action.dest in files["files"]:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest in files["folders"]:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    preamble: Any = _preamble(names["config"])  # shtab says str, and takes one text for each shell
    return shtab.complete(parser, shell, preamble=preamble)


def _actions(parser: argparse.ArgumentParser) -> Iterable[argparse.Action]:
    """The arguments of the program and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from command._actions


def _names() -> dict[str, list[str]]:
    """The names that an option takes, by option."""
    from kvproof.cli.explain import every_name
    from kvproof.cli.release_surveys import SURVEYED
    from kvproof.invariants.registry import CHECKS
    from kvproof.model.faults.registry import FAULTS
    from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
    from kvproof.model.severity import Severity
    from kvproof.proofs.prove import everything

    return {
        "config": sorted([*CLUSTERS, *LIVE_CLUSTERS]),
        "fault": sorted(FAULTS),
        "invariant": sorted(CHECKS),
        "obligation": sorted(everything()),
        "explained": every_name(),
        "releases": list(SURVEYED),
        "fail_on": [each.option for each in Severity],
    }


def _preamble(presets: Sequence[str]) -> dict[str, str]:
    """The function of each shell that completes a cluster: a preset or a file."""
    # Older releases of shtab call that of bash where only the end of a line separates words.
    lines = "\n".join(presets)
    either = f"'presets:preset:({' '.join(presets)})' 'files:file:_files'"
    return {
        "bash": f'{CLUSTERS_FUNCTION}() {{\n  compgen -W "{lines}" -- "$1"\n'
        '  compgen -f -- "$1"\n}',
        "zsh": f"{CLUSTERS_FUNCTION}() {{\n  _alternative {either}\n}}",
    }
