"""This module has the data of the block ledger's page. A state is flat (see
`model.traces.state_diff`)."""

import json
from typing import Any

from msgspec import Struct, to_builtins

from kvproof.invariants.registry import CHECKS
from kvproof.model.finding import Finding
from kvproof.model.traces.state_diff import Flat


class ShownEngine(Struct, frozen=True, kw_only=True):
    """An engine: its role (empty: an engine alone), the number of its blocks, and the text, the
    block size in tokens and the kind of each cache group. A block of it is `split` kernel
    blocks."""

    name: str
    blocks: int
    groups: tuple[str, ...]
    sizes: tuple[int, ...]
    kinds: tuple[str, ...]
    role: str = ""
    split: int = 1


class TransferSide(Struct, frozen=True):
    """A side of a transfer: its engine and its request."""

    engine: str
    request: str


class ShownTransfer(Struct, frozen=True):
    """Who sends and who receives in a transfer."""

    sender: TransferSide
    receiver: TransferSide


class ShownStep(Struct, frozen=True, kw_only=True):
    """An event: its number as its file has it, what happened, and the same in `words` for a reader
    who does not know the names of events; the functions of vLLM that do it, whether it matters to
    the findings, what is broken after it, and the change of the state (`changed` is None where it
    was not recorded)."""

    label: str
    text: str
    words: str
    functions: tuple[str, ...]
    near: bool = True
    found: tuple[str, ...] = ()
    changed: Flat | None = None
    removed: tuple[str, ...] = ()


class ShownFinding(Struct, frozen=True, kw_only=True):
    """A finding, and the number of its step on the page, from 1."""

    name: str
    severity: str
    must: str
    reasons: tuple[str, ...]
    step: int
    engine: str
    request: str
    block: int | None


class ShownWait(Struct, frozen=True, kw_only=True):
    """What a request waits for: the facts as a sentence, and a few words for a cell of the page.
    `on` is the request that it waits for, as its engine and its name, or nothing. `root` says
    whether a scheduler refuses it, and not another request or engine."""

    engine: str
    request: str
    words: str
    short: str
    root: bool
    on: tuple[str, ...] = ()


class ShownHang(Struct, frozen=True, kw_only=True):
    """Why a run does not go on: the step on the page from which the steps repeat without end (from
    1; None: no step repeats), who waits for what, and the functions of vLLM that refuse. `printed`:
    the reasons of the finding have all this."""

    begins: int | None
    waits: tuple[ShownWait, ...]
    refuses: tuple[str, ...]
    printed: bool = False


class Ledger(Struct, frozen=True, kw_only=True):
    """All that the page shows. `at_fault` are the functions of vLLM that are at fault, where they
    are known."""

    title: str
    findings: tuple[ShownFinding, ...]
    replay: str
    notes: tuple[str, ...] = ()
    engines: tuple[ShownEngine, ...]
    transfers: dict[str, ShownTransfer]
    hang: ShownHang | None = None
    at_fault: tuple[str, ...] = ()
    initial: Flat
    steps: tuple[ShownStep, ...]


def shown_finding(finding: Finding, step: int) -> ShownFinding:
    """Return a finding after a step, as the page shows it."""
    known = CHECKS.get(finding.invariant)
    return ShownFinding(
        name=finding.invariant,
        severity=known.severity.words if known and known.severity else "",
        must=f"It must be true that {known.name} ({known.origin})." if known else "",
        reasons=finding.sentences,
        step=step,
        engine=finding.about.engine,
        request=finding.about.request,
        block=finding.about.block,
    )


def encoded(ledger: Ledger) -> str:
    """Return the data as JSON that can stand in a script element."""
    plain: Any = to_builtins(ledger)
    return json.dumps(plain, ensure_ascii=True).replace("<", "\\u003c")
