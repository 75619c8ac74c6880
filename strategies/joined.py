"""The records of a prefill engine P and a decode engine D, put together by request.

Each request of D says which request of P it loads from. Only both records together show whether the
blocks that D fills are for the tokens whose KV is in P's blocks, whether both count the same
tokens, and whether P kept the blocks until D asked for them.

The lists are trimmed by the worker of the vLLM that wrote the record of D, which is passed in.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kvproof.invariants.check import broken
from kvproof.invariants.of_bytes import TRANSFERRED
from kvproof.invariants.registry import CHECKS, why_hidden
from kvproof.model.because import About, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Lists, Schedule
from kvproof.model.finding import Finding
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.records.lines import Admitted, BlockSums, Offer, Remote
from kvproof.model.records.record import Record, followed, pair
from kvproof.model.state import LOADING, SENDING, Engine, State, Transfer
from kvproof.model.state import Request as RequestState
from kvproof.model.step import Admission, Effects, Step

Pairs: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
Trim: TypeAlias = Callable[[EngineConfig, Lists, Lists], Pairs]
"""A function of the worker of D that trims its own block lists and P's."""

TRANSFER = frozenset({Need.PAIRED_BLOCKS, Need.LOADED_FROM_P})
"""The facts that both records together show about a transfer by reading."""

SHOWN = TRANSFER | {Need.OFFERED, Need.BLOCKS_IN_TRANSFER}
"""The facts that both records together show about the requests that they share."""

CHECKED = tuple(each for each in CHECKS.values() if SHOWN.issuperset(each.needs))
"""The checks that are asked of both records together."""

JOIN_CHECKS = (*(each.id for each in CHECKED), TRANSFERRED)
NECESSARY = tuple(each.id for each in CHECKED if TRANSFER.issuperset(each.needs))
"""The checks without which nothing is known about a transfer."""


class Sent(NamedTuple):
    """A request that P has finished and keeps for D: what it offers, when, its block tables, and
    when P freed them (None: not in the record)."""

    offer: Offer
    at_s: float
    tables: Lists
    freed_s: float | None = None


class Taken(NamedTuple):
    """A request of D that has asked for the blocks of a request of P: when, the blocks to be
    filled, its block tables and its admission (None where it was aborted before)."""

    name: str
    remote: Remote
    at_s: float
    blocks: Lists
    tables: Lists
    admitted: Admitted | None


@dataclass
class Judged:
    """The result of judging two joined records: the number of joined requests, how often each check
    had something to judge, why a check was not judged, and the findings."""

    requests: int = 0
    times_judged: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def judged(prefill: Record, decode: Record, trim: Trim | None, why_not: str = "") -> Judged:
    """Judge each request that both records have. `trim` trims the two block lists; without it,
    `why_not` says why there is none."""
    cluster = pair(prefill.header.engine, decode.header.engine)
    judged, hidden = Judged(), dict[Need, str]()
    if trim is None:
        hidden[Need.PAIRED_BLOCKS] = why_not
    elif why := _unpaired(cluster):
        trim = None
        hidden[Need.PAIRED_BLOCKS] = why
    if not prefill.header.clock or prefill.header.clock != decode.header.clock:
        hidden[Need.BLOCKS_IN_TRANSFER] = "the clocks of the two machines cannot be compared"
    for check in CHECKED:
        if why := why_hidden(check, hidden):
            judged.skipped[check.id] = why
    given, first = sent(prefill), set()
    for taken in took(decode):
        source = given.get(taken.remote.request)
        if source is None or taken.admitted is None or not taken.tables:
            continue
        judged.requests += 1
        shown = set(SHOWN.difference(hidden))
        if taken.remote.request in first or _lease_over(prefill, source, taken):
            shown.discard(Need.BLOCKS_IN_TRANSFER)
        first.add(taken.remote.request)
        _judge(cluster, source, taken, trim, shown, judged)
        _compare(cluster, prefill, decode, taken, judged)
    judged.skipped.setdefault(
        TRANSFERRED, "the records have no sums of it; KVPROOF_BYTES=1 adds them"
    )
    return judged


def _compare(
    cluster: Cluster, prefill: Record, decode: Record, taken: Taken, judged: Judged
) -> None:
    """Compare the bytes of the blocks that D has loaded with those that P has sent."""
    given = {each.group: each for each in sums(prefill, taken.remote.request, sent=True)}
    for ours in sums(decode, taken.name, sent=False):
        theirs = given.get(ours.group)
        if theirs is None:
            continue
        if theirs.form != ours.form:
            judged.skipped[TRANSFERRED] = f"P has {theirs.form}, and D has {ours.form}"
            continue
        size = cluster.decode.groups[ours.group].block_size
        for column, sum_of in enumerate(ours.sums, ours.at):
            there = theirs.sums[column - theirs.at : column - theirs.at + 1]
            whole = (column + 1) * size <= min(ours.tokens, theirs.tokens)
            if not sum_of or not any(there) or not (whole or copies_blocks(decode)):
                continue
            judged.times_judged[TRANSFERRED] += 1
            if there != (sum_of,):
                judged.findings.append(_unequal(cluster, taken, ours.group, column))


def sums(record: Record, name: str, *, sent: bool) -> Iterator[BlockSums]:
    """The sums of the blocks of a request that were sent, or loaded."""
    for event, _ in record.events:
        yield from (each for each in event.block_sums if (each.request, each.sent) == (name, sent))


def copies_blocks(record: Record) -> bool:
    """Whether the connector copies whole blocks, including slots that hold no token of the
    request."""
    connector = record.header.connector
    return connector is not None and "Nixl" in connector.name


def _unequal(cluster: Cluster, taken: Taken, group: int, column: int) -> Finding:
    p, d = cluster.prefill.name, cluster.decode.name
    must = reason(
        "loads_column",
        "{request} loads the tokens of column {column} of group {group} from {source}",
        column=column,
        source=p,
    )
    found = reason(
        "other_bytes",
        "the block of {engine} does not have the bytes of the block of {source}",
        source=p,
    )
    return Finding(TRANSFERRED, (must, found), About(d, taken.name, group))


def _unpaired(cluster: Cluster) -> str:
    """Why the blocks of P and D are not compared block by block."""
    sizes = [[group.block_size for group in engine.groups] for engine in cluster.engines]
    return "" if sizes[0] == sizes[1] else "P and D have blocks of different sizes"


def _lease_over(record: Record, source: Sent, taken: Taken) -> bool:
    """Whether P freed the blocks before D asked because their lease had ended. Then D's read is in
    vain, and this is no mistake of P."""
    connector = record.header.connector
    if source.freed_s is None or source.freed_s >= taken.at_s or connector is None:
        return connector is None
    return source.freed_s - source.at_s >= connector.lease_s


def sent(record: Record) -> dict[str, Sent]:
    """The requests that P offers, by name."""
    found: dict[str, Sent] = {}
    for (event, _), tables in followed(record):
        for offer in event.offers:
            if offer.request in tables and any(offer.blocks):
                found[offer.request] = Sent(offer, event.at_s, tables[offer.request])
        for change in event.tables:
            known = found.get(change.request)
            if known is not None and known.freed_s is None and change.request not in tables:
                found[change.request] = known._replace(freed_s=event.at_s)
    return found


def took(record: Record) -> Iterator[Taken]:
    """The requests of D that ask for blocks of P, in their order."""
    remotes: dict[str, Remote] = {}
    admitted: dict[str, Admitted] = {}
    for (event, _), tables in followed(record):
        arrived = event.arrived
        if arrived is not None and arrived.remote is not None and not arrived.sends:
            remotes[arrived.request] = arrived.remote
        admitted |= {each.request: each for each in event.admitted}
        for load in event.loads:
            name = load.request
            if name in remotes:
                held = tables.get(name, ())
                remote = remotes.pop(name)
                yield Taken(name, remote, event.at_s, load.blocks, held, admitted.get(name))


def _judge(
    cluster: Cluster,
    source: Sent,
    taken: Taken,
    trim: Trim | None,
    shown: set[Need],
    judged: Judged,
) -> None:
    p, d = cluster.prefill, cluster.decode
    assert taken.admitted is not None
    hit, external = taken.admitted.hit, taken.admitted.external
    offered = Transfer(taken.name, Phase.OFFERED, source.offer.tokens, source.offer.blocks)
    transfer = offered.to(Phase.READING, local=taken.blocks)
    if trim is not None and any(taken.blocks):
        remote = taken.remote.blocks or source.offer.blocks
        transfer = transfer._replace(pairs=trim(d, taken.blocks, remote))
    else:
        shown.discard(Need.PAIRED_BLOCKS)
    kept = source.freed_s is None or source.freed_s >= taken.at_s
    kept |= Need.BLOCKS_IN_TRANSFER not in shown
    sending = RequestState(taken.name, SENDING, "", 0, 1, tables=source.tables)
    loading = RequestState(taken.name, LOADING, "", 0, 1, tables=taken.tables)
    loading = loading._replace(hit=hit, external=external)
    engines = (
        Engine(p.name, (), (), requests=(sending,) if kept else ()),
        Engine(d.name, (), (), requests=(loading,)),
    )
    admission = Admission(d.name, taken.name, "", "from_prefill", hit, external, ())
    step = Step(
        State(engines, (offered,)),
        Schedule(d.name, ()),
        Effects(admissions=(admission,)),
        State(engines, (transfer,)),
    )
    if not external:  # D has all of it, and reads nothing
        step = step._replace(after=State(engines, (offered.to(Phase.RELEASING),)))
        shown &= {Need.OFFERED}
    checks = [check for check in CHECKED if shown.issuperset(check.needs)]
    judged.times_judged.update(check.id for check in checks)
    judged.findings += broken(cluster, step, checks)
