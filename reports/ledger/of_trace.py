"""This module makes the data of the block ledger from a trace."""

from pathlib import Path

from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.config.sides import giver, taker, transfer_names
from kvproof.model.events import describe
from kvproof.model.faults.registry import FAULTS
from kvproof.model.known_finding import KnownFinding
from kvproof.model.state import initial
from kvproof.model.traces.state_diff import flat
from kvproof.model.traces.trace import Trace
from kvproof.reports.ledger.data import (
    Ledger,
    ShownEngine,
    ShownHang,
    ShownStep,
    ShownTransfer,
    ShownWait,
    TransferSide,
    shown_finding,
)
from kvproof.reports.terminal import replay_line
from kvproof.reports.trace.about import TraceFocus
from kvproof.reports.trace.engines import group_text, prompts
from kvproof.reports.trace.functions import at_fault, functions
from kvproof.reports.trace.hang import hang_of
from kvproof.reports.trace.in_words import in_words
from kvproof.reports.trace.signs import Sign, first_sign
from kvproof.strategies.waits import ROOTS, Wait


def of_trace(trace: Trace, path: Path | None = None, known: KnownFinding | None = None) -> Ledger:
    """Return the data of a trace. `path` is its file, which is named in the command that replays
    it, and `known` the known finding of vLLM that it shows."""
    last = len(trace.events)
    return Ledger(
        title=_title(trace),
        findings=(shown_finding(trace.finding, last),) if trace.finding else (),
        replay=replay_line(trace, path) if path else "",
        engines=tuple(map(_engine, trace.cluster.engines)),
        transfers=_transfers(trace.cluster),
        notes=tuple(line.text for line in prompts(trace.cluster)),
        hang=_hang(trace),
        at_fault=tuple(at_fault(trace.faults, known)),
        initial=flat(initial(trace.cluster)),
        steps=_steps(trace),
    )


def _hang(trace: Trace) -> ShownHang | None:
    hang = hang_of(trace)
    if hang is None:
        return None
    return ShownHang(
        begins=hang.begins,
        waits=tuple(map(_wait, hang.waits)),
        refuses=tuple(hang.refuses),
        printed=hang.printed,
    )


def _wait(wait: Wait) -> ShownWait:
    return ShownWait(
        engine=wait.engine,
        request=wait.request,
        words=wait.sentence,
        short=wait.short,
        root=wait.lack in ROOTS,
        on=wait.on if all(wait.on) else (),
    )


def _engine(engine: EngineConfig) -> ShownEngine:
    return ShownEngine(
        name=engine.name,
        blocks=engine.num_blocks,
        groups=tuple(map(group_text, engine.groups)),
        sizes=tuple(group.block_size for group in engine.groups),
        kinds=tuple(group.kind for group in engine.groups),
        role=engine.role if engine.role != "both" else "",
        split=engine.physical_per_logical,
    )


def _transfers(cluster: Cluster) -> dict[str, ShownTransfer]:
    if len(cluster.engines) == 1:
        return {}
    return {name: _transfer(cluster, name) for name in transfer_names(cluster)}


def _transfer(cluster: Cluster, name: str) -> ShownTransfer:
    (sender, sent), (receiver, received) = giver(cluster, name), taker(cluster, name)
    return ShownTransfer(TransferSide(sender.name, sent), TransferSide(receiver.name, received))


def _title(trace: Trace) -> str:
    where = trace.machine + (f" (vLLM {trace.vllm})" if trace.vllm else "")
    faults = "".join(f". Fault {n}: {FAULTS[n].mistake}" for n in trace.faults if n in FAULTS)
    return f"{len(trace.events)} events on {where}, cluster {trace.cluster.name}{faults}"


def _steps(trace: Trace) -> tuple[ShownStep, ...]:
    near, last = _near(trace), len(trace.events)
    sign = first_sign(trace)
    if sign is not None:
        near.add(sign.event)
    request = trace.finding.about.request if trace.finding else ""
    changes = trace.changes or [None] * last
    found = (trace.finding.invariant,) if trace.finding else ()
    return tuple(
        ShownStep(
            label=str(number),
            text=describe(event),
            words=in_words(event),
            functions=tuple(functions(event, request)),
            near=number in near,
            found=found if number == last else _names(sign, number),
            changed=change.changed if change else None,
            removed=change.removed if change else (),
        )
        for number, (event, change) in enumerate(zip(trace.events, changes, strict=True), 1)
    )


def _names(sign: Sign | None, number: int) -> tuple[str, ...]:
    return (sign.finding.invariant,) if sign is not None and number == sign.event else ()


def _near(trace: Trace) -> set[int]:
    """Return the numbers of the events that concern the finding."""
    numbers = set(range(1, len(trace.events) + 1))
    if trace.changes is not None:
        about, states = TraceFocus(trace, False), trace.states()
        before = next(states)
        for number, (change, after) in enumerate(zip(trace.changes, states, strict=True), 1):
            if not any(entry.near for entry in about.entries(change, before, after)):
                numbers.discard(number)
            before = after
    last = {len(trace.events)} if trace.finding is not None else set()
    return numbers | last
