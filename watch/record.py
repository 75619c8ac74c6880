"""This module makes the record of a watched engine from the notes of its last events.

Nothing of it is computed before somebody asks for it.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import structs

import kvproof
from kvproof.live.availability import UNKNOWN_VERSION, installed
from kvproof.model.errors import UsageError
from kvproof.model.events import Lists
from kvproof.model.files.reading import read_text
from kvproof.model.finding import Finding
from kvproof.model.records import lines
from kvproof.model.records.record import Happened, Record
from kvproof.model.records.words import described
from kvproof.model.traces.lines import Versions
from kvproof.watch.history import History, NotedEvent
from kvproof.watch.notes import EngineNotes
from kvproof.watch.tokens import Prefix

BOOT = Path("/proc/sys/kernel/random/boot_id")

LEASE_S = 30
"""NIXL's own default of how long it keeps blocks."""


def record_of(notes: EngineNotes, why: lines.Why, stopped: str = "") -> Record:
    """Return what is known of an engine now."""
    history = notes.history
    past = list(history.events)
    happened = tuple(map(_happened, past))
    header = lines.RecordHeader(
        schema=lines.SCHEMA,
        kind=lines.KIND,
        why=why,
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=Versions(kvproof.__version__, _version()),
        process=os.getpid(),
        clock=_clock(),
        from_start=history.from_start,
        dropped=past[0].step - 1 if past else 0,
        stopped=stopped,
        engine=_engine(notes),
        connector=_connector(notes.scheduler),
    )
    found = [finding for each in happened for finding in each.findings]
    return Record(header, happened, _state(notes, found))


def last_words(history: History, count: int) -> Iterator[str]:
    """Return the last events, one line each."""
    for event in list(history.events)[-count:]:
        yield described(_event(event))


def _version() -> str:
    try:
        return installed()
    except UsageError:
        return UNKNOWN_VERSION


def _clock() -> str:
    """Return the boot id of the machine. Only the times of two records of one boot can be
    compared."""
    try:
        return read_text(BOOT, "file").strip()
    except UsageError:  # another system than Linux
        return ""


def _engine(notes: EngineNotes) -> lines.RecordedEngine:
    cfg = notes.cfg
    names = set(lines.RecordedEngine.__struct_fields__) - {"groups"}
    return lines.RecordedEngine(
        groups=tuple(
            lines.RecordedGroup(**{f: getattr(g, f) for f in lines.RecordedGroup.__struct_fields__})
            for g in cfg.groups
        ),
        **{name: getattr(cfg, name) for name in names},
    )


def _connector(scheduler: Any) -> lines.Connector | None:
    if scheduler.connector is None:
        return None
    name = type(scheduler.connector).__name__
    config = scheduler.vllm_config.kv_transfer_config
    lease = config.get_from_extra_config("kv_lease_duration", LEASE_S) if "Nixl" in name else 0
    return lines.Connector(name=name, engine=str(config.engine_id or ""), lease_s=float(lease))


# Notes as fields of a record.


def _happened(event: NotedEvent) -> Happened:
    findings = tuple(_plain(note[1]) for note in list(event.notes) if note[0] == "finding")
    return Happened(_event(event), findings)


def _plain(finding: Finding) -> Finding:
    """Return a finding whose prefix is a text, as in its reasons."""
    prefix = finding.about.prefix
    if isinstance(prefix, Prefix):
        about = structs.replace(finding.about, prefix=repr(prefix))
        return dataclasses.replace(finding, about=about)
    return finding


def _event(event: NotedEvent) -> lines.RecordedEvent:
    fields: dict[str, Any] = {}
    for field, *values in list(event.notes):
        if field == "arrived":
            fields[field] = _arrived(*values)
        elif field in ("outputs", "ended"):
            fields.setdefault(field, {})[values[0]] = values[1]
        elif field == "reset":
            fields["running"], fields["done"] = values
        elif field in ("tokens", "received", "failed", "sent", "evicted"):
            [fields[field]] = values
        elif field in _MADE:
            fields.setdefault(field, []).append(_MADE[field](*values))
    made: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
    return lines.RecordedEvent(
        step=event.step,
        at_s=round(event.at_s, 6),
        event=event.method,  # type: ignore[arg-type]
        raised=event.raised,
        **made,
    )


def _arrived(
    name: str,
    prompt: int,
    most: int,
    priority: int,
    reads: bool,
    resumable: bool,
    params: dict[str, Any] | None,
) -> lines.Arrived:
    return lines.Arrived(
        request=name,
        prompt_tokens=prompt,
        output_tokens_max=most,
        priority=priority,
        reads_cache=reads,
        resumable=resumable,
        sends=bool(params and params.get("do_remote_decode")),
        remote=_remote(params) if params else None,
    )


def _remote(params: dict[str, Any]) -> lines.Remote | None:
    if not params.get("remote_request_id"):
        return None
    return lines.Remote(
        engine=str(params.get("remote_engine_id", "")),
        request=str(params["remote_request_id"]),
        blocks=_lists(params.get("remote_block_ids")),
        tokens=params.get("remote_num_tokens"),
    )


def _offer(name: str, params: dict[str, Any]) -> lines.Offer:
    blocks = _lists(params.get("remote_block_ids"))
    return lines.Offer(request=name, blocks=blocks, tokens=params.get("remote_num_tokens") or 0)


def _lists(groups: Iterable[Any] | None) -> Lists:
    """Return lists of blocks, by group. Some connectors have one list and no groups."""
    lists = list(groups or ())
    if any(isinstance(each, int) for each in lists):
        lists = [lists]
    return tuple(tuple(int(block) for block in group) for group in lists)


def _change(name: str, group: int, at: int, blocks: list[int]) -> lines.TableChange:
    return lines.TableChange(request=name, group=group, at=at, blocks=tuple(blocks))


_MADE: dict[str, Callable[..., Any]] = {
    "admitted": lambda name, hit, more: lines.Admitted(request=name, hit=hit, external=more),
    "preempted": lambda name, needy: lines.Preempted(request=name, needy=needy),
    "released": str,
    "loaded": str,
    "loads": lambda name, blocks: lines.Load(request=name, blocks=_lists(blocks)),
    "offers": _offer,
    "tables": _change,
    "block_sums": lambda sums: sums,
    "shared": lambda name, row: lines.SharedTokens(request=name, row=row),
}
"""How the fields that are lists are made of the values of a note."""


# The engine at the end.


def _state(notes: EngineNotes, found: list[Finding]) -> lines.EngineState:
    pool = notes.slices.pool
    held = tuple(_held(each) for each in list(notes.requests.values()) if any(each.tables))
    names = {finding.about.request for finding in found}
    ids = {f.about.block for f in found if f.about.block is not None}
    ids |= {b for each in held if each.request in names for table in each.tables for b in table}
    blocks = (pool.blocks[number] for number in sorted(ids) if 0 <= number < len(pool.blocks))
    return lines.EngineState(
        requests=held,
        free_blocks=pool.get_num_free_blocks(),
        blocks=tuple(
            lines.SeenBlock(
                block=block.block_id,
                refs=block.ref_cnt,
                free=block.prev_free_block is not None,
                cached=block.block_hash is not None,
            )
            for block in blocks
        ),
    )


def _held(watched: Any) -> lines.HeldRequest:
    live = watched.live
    return lines.HeldRequest(
        request=live.request_id,
        status=str.lower(live.status.name),
        prompt_tokens=live.num_prompt_tokens,
        output_tokens=live.num_output_tokens,
        computed_tokens=live.num_computed_tokens,
        tables=tuple(tuple(block.block_id for block in table) for table in watched.tables),
    )
