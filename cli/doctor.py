"""`kvproof doctor`: which features of the installed vLLM kvproof can drive, and what is missing.

Exit code 0 if one engine can be driven, 3 if vLLM is absent, fails at import, or lacks what every
engine needs.
"""

import argparse
import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvproof.cli import parser as options
from kvproof.cli.finish import finish
from kvproof.cli.machines import borrow, print_import_error
from kvproof.live import availability, importing
from kvproof.live.contract.entry import Place
from kvproof.live.contract.features import CORE, FEATURES
from kvproof.live.contract_check import Contract, EntryLookup, check
from kvproof.live.importing import Hidden
from kvproof.live.releases import cache_folder
from kvproof.live.trees.commits import GB, LIMIT, kept_size, limit_bytes
from kvproof.model.counted import counted
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.reports import live_line
from kvproof.reports.screen import say
from kvproof.watch import switch
from kvproof.watch.run import parts, runs
from kvproof.watch.summary import Summary

CANNOT = 3

NAMED = 4
"""Number of missing entries that the line of a feature names; the table marks all of them."""


class InstalledVllm(NamedTuple):
    """The installed vLLM and its contract. `failure` is the reason, in one or two sentences, if
    nothing can be looked up. `sanitizer` are sentences about engines that are watched, and `cache`
    is one about the cache folder."""

    version: str
    path: str
    contract: Contract
    failure: str = ""
    sanitizer: tuple[str, ...] = ()
    cache: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code is 0 if one engine can be driven."""
        return CANNOT if self.failure or self.contract.missing(CORE) else 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof doctor` to its parser."""
    options.add_vllm(parser)


def run(args: argparse.Namespace) -> int:
    """Look everything up, and print the result."""
    borrow(args.vllm, args.cache, live=True)
    cache = _about_cache(args.cache)
    found = _found()._replace(sanitizer=tuple(watched()), cache=cache)
    return finish(
        args,
        found.exit_code,
        lambda: _output(found),
        lambda: _print(found),
    )


def _about_cache(chosen: Path | None) -> str:
    """Say how much the cache folder keeps of commits of vLLM, and what limits it."""
    folder = cache_folder(chosen)
    kept, most = kept_size(folder), limit_bytes() / GB
    commits = counted(kept.commits, "commit")
    return (
        f"The cache folder {shown(folder)} keeps {commits} of vLLM, {kept.size / GB:.2f} GB with "
        f"their mirrors. Beyond {most:g} GB the oldest are removed; {LIMIT} sets another limit."
    )


def _found() -> InstalledVllm:
    try:
        version, path = availability.installed(), str(availability.place())
    except UsageError as error:
        return InstalledVllm("", "", Contract(()), str(error))
    live_line.show("importing vLLM ...")
    contract = check()
    print_import_error(contract.traceback)
    failure = contract.failure and (
        f"vLLM {version} in {path} fails at import ({contract.failure}). {_remedy(contract)}."
    )
    return InstalledVllm(version, path, contract, failure)


def _remedy(contract: Contract) -> str:
    """Say what to do about a vLLM that cannot be imported. It is never replaced by another one."""
    if ".so" in contract.failure or "undefined symbol" in contract.failure:
        return "Use compiled parts that fit it: a wheel that was built from sources near to it"
    if contract.lacks:
        return "Use an environment that has all packages that this vLLM needs"
    if contract.traceback[1:]:
        return "Use the lines of vLLM that led to this, on standard error, to correct it"
    return "Use the Python that it was installed for"


def _output(found: InstalledVllm) -> dict[str, object]:
    contract = found.contract
    return {
        "vllm": {"version": found.version or None, "path": found.path or None},
        "failure": found.failure or None,
        "sanitizer": found.sanitizer,
        "cache": found.cache,
        "hidden": contract.hidden,
        "features": [
            {
                "name": name,
                "what": feature.what,
                "needs": feature.needs,
                "drivable": not found.failure and not contract.missing(name),
                "missing": [look.entry.name for look in contract.missing(name)],
            }
            for name, feature in FEATURES.items()
        ],
        "entries": [
            {
                "name": look.entry.name,
                "feature": look.entry.feature,
                "used_for": look.entry.used_for,
                "looked_at": (look.place or look.entry.places[0]).how,
                "found": look.place and _where(look.place),
                "why": look.why or None,
            }
            for look in contract.looks
        ],
    }


def _where(place: Place) -> str:
    """Say where an entry was found."""
    if place.absent:
        return f"an older release, without {place.name}"
    if place.module and place.names:
        return f"{place.module}:{place.name}"
    return place.name


def _print(found: InstalledVllm) -> None:
    for hidden in found.contract.hidden:
        say(_advice(hidden))
    if found.failure:
        say(found.failure)
        for line in (*found.sanitizer, found.cache):
            say(line)
        return
    for name in FEATURES:
        looks = [look for look in found.contract.looks if look.entry.feature == name]
        if looks:
            _print_entries(name, looks)
    say()
    say(f"vLLM {found.version} in {found.path}")
    for line in (*found.sanitizer, found.cache):
        say(line)
    undrivable = [name for name in FEATURES if found.contract.missing(name)]
    for name in undrivable:
        cannot = "cannot be driven" if FEATURES[name].drives else "is not possible"
        say(f"{name} {cannot}: {_why(name, found.contract.missing(name))}.")
    driven = [name for name, feature in FEATURES.items() if feature.drives]
    drivable = [name for name in driven if name not in undrivable]
    say(f"{len(drivable)} of {len(driven)} features can be driven.")


def _advice(hidden: Hidden) -> str:
    """Say what to do about a package that does not load."""
    torch = importing.version("torch")
    return (
        f"{hidden.name} {hidden.version} does not load beside torch {torch} ({hidden.why}), so "
        "kvproof hides it from vLLM. kvproof does not need it. Use pip uninstall "
        f"{hidden.name}, or install its build for this torch, to use vLLM without kvproof."
    )


def _why(name: str, missing: list[EntryLookup]) -> str:
    """Say what a feature lacks, or which feature that it needs lacks something."""
    own = [look for look in missing if look.entry.feature == name]
    if not own:
        return f"it needs {missing[0].entry.feature}"
    names = ", ".join(look.entry.name for look in own[:NAMED])
    more = f" and {len(own) - NAMED} more" if len(own) > NAMED else ""
    return f"missing: {names}{more}{f' ({own[0].why})' if own[0].why else ''}"


def _print_entries(name: str, looks: list[EntryLookup]) -> None:
    """Print how many entries of a feature are there, and what each missing entry is needed for."""
    missing = [look for look in looks if look.place is None]
    say(f"{name}: {FEATURES[name].what}: {len(looks) - len(missing)} of {len(looks)}", hang=2)
    for look in missing:
        say(f"  MISSING  {look.entry.name}: {look.entry.used_for}", hang=11)


PLUGINS = "vllm.general_plugins"


def watched() -> Iterator[str]:
    """Say what is known here: of the environment, and of each process of a run that is left."""
    yield _environment()
    for folder in runs():
        for part in parts(folder):
            summary = Summary()
            summary.add(part.numbers)
            how = part.lost or f"{part.saved.name} pid {part.saved.pid} has ended"
            yield f"{folder.name}: {how}: {summary.verdict}."


def _environment() -> str:
    mode = switch.mode()
    if not mode:
        return f"{switch.VARIABLE} is not set: an engine that is started here is not watched."
    if mode not in switch.MODES:
        return switch.no_mode(mode)
    if why := switch.left_out():
        return why
    if not any(each.name == switch.NAME for each in importlib.metadata.entry_points(group=PLUGINS)):
        return (
            f"{switch.VARIABLE}={mode} is set, but kvproof is not installed where vLLM looks for "
            "plugins, so no engine is watched. Use pip install in the environment of vLLM."
        )
    bytes_too = ", with the bytes of its blocks" if os.environ.get(switch.BYTES) == "1" else ""
    return f"{switch.VARIABLE}={mode}: an engine that is started here is watched{bytes_too}."
