"""This module makes the states of a record: what is known of an engine after each of its events.

A record has no states. What its events say of requests, block tables and transfers is put together
here; a field that they do not say is left out, and stands for what is not known.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple

from kvproof.model.events import Lists
from kvproof.model.finding import Finding
from kvproof.model.phases import Phase
from kvproof.model.records.lines import Offer, RecordedEvent, Remote
from kvproof.model.records.record import Record, followed
from kvproof.model.traces.state_diff import Flat, escaped
from kvproof.reports.ledger.data import ShownTransfer, TransferSide


class RecordStates:
    """Follow the state of one engine, under a `name`. `transfers` has who takes part in each
    transfer: the record of one engine has one side of it. `freed` are the blocks that the last
    event took out of block tables."""

    def __init__(self, record: Record, name: str) -> None:
        self.record = record
        self.name = name
        self.flat: Flat = {f"/engines/{escaped(name)}/name": name}
        self.transfers: dict[str, ShownTransfer] = {}
        self._remotes: dict[str, Remote] = {}
        self.freed: set[int] = set()
        self._known: dict[str, set[int]] = defaultdict(set)
        self._groups = set(range(len(record.header.engine.groups)))

    def after(self) -> Iterator[RecordedEvent]:
        """Return each event; `flat` is then the state after it."""
        for (event, _), tables in followed(self.record):
            self._arrives(event)
            self._runs(event)
            self._transfers(event)
            self._tables(event, tables)
            self._leaves(event)
            yield event

    def end(self) -> None:
        """Add what the engine had when the record was written."""
        state = self.record.state
        for held in state.requests:
            fields = {
                "status": held.status,
                "prompt_tokens": held.prompt_tokens,
                "computed": held.computed_tokens,
                "tables": [list(table) for table in held.tables],
            }
            self._set(held.request, **fields)
        for block in state.blocks:
            base = f"/engines/{escaped(self.name)}/blocks/{block.block}"
            self.flat |= {f"{base}/refs": block.refs, f"{base}/cached": block.cached}
            self.flat[f"{base}/free"] = block.free

    # Fields.

    def _at(self, request: str) -> str:
        return f"/engines/{escaped(self.name)}/requests/{escaped(request)}"

    def _set(self, request: str, **fields: object) -> None:
        base = self._at(request)
        self.flat[f"{base}/id"] = request
        self.flat |= {f"{base}/{name}": value for name, value in fields.items()}

    def _has(self, request: str) -> bool:
        return f"{self._at(request)}/id" in self.flat

    def _drop(self, base: str) -> None:
        for pointer in [each for each in self.flat if each.startswith(f"{base}/")]:
            del self.flat[pointer]

    # What an event says.

    def _arrives(self, event: RecordedEvent) -> None:
        arrived = event.arrived
        if arrived is None:
            return
        if arrived.remote is not None and not arrived.sends:
            self._remotes[arrived.request] = arrived.remote
        self._known[arrived.request] |= self._groups
        self._set(arrived.request, status="waiting", prompt_tokens=arrived.prompt_tokens, tables=[])

    def _runs(self, event: RecordedEvent) -> None:
        if event.event == "schedule":
            self.flat = {p: v for p, v in self.flat.items() if not p.endswith("/scheduled")}
            for name, tokens in event.tokens.items():
                self._set(name, status="running", scheduled=tokens)
        for each in event.admitted:
            loads = bool(each.external) and each.request not in event.tokens
            status = "loading" if loads else "running"
            self._set(each.request, status=status, hit=each.hit, external=each.external)
        for lost in event.preempted:
            self._set(lost.request, status="preempted")
        for name in event.loaded:
            if name not in event.tokens and self._has(name):
                self._set(name, status="waiting")

    def _transfers(self, event: RecordedEvent) -> None:
        for offer in event.offers:
            if any(offer.blocks):
                self._set(offer.request, status="sending")
                sides = ShownTransfer(TransferSide(self.name, offer.request), TransferSide("", ""))
                self._transfer(self._offer(offer.request), sides, offer)
        for load in event.loads:
            if any(load.blocks):
                remote = self._remotes.get(load.request)
                sender = TransferSide("", remote.request if remote else "")
                sides = ShownTransfer(sender, TransferSide(self.name, load.request))
                self._transfer(self._load(load.request), sides, remote, load.blocks)
        for name in (*event.received, *event.failed):
            self._drop(f"/transfers/{escaped(self._load(name))}")
        for name in event.sent:
            self._drop(f"/transfers/{escaped(self._offer(name))}")

    def _load(self, request: str) -> str:
        return f"{request} to {self.name}"

    def _offer(self, request: str) -> str:
        return f"{request} from {self.name}"

    def _transfer(
        self, name: str, sides: ShownTransfer, sent: Offer | Remote | None, local: Lists = ()
    ) -> None:
        self.transfers[name] = sides
        fields = {
            "request": name,
            "phase": Phase.READING if local else Phase.OFFERED,
            "tokens": sent.tokens if sent else None,
            "remote": [list(each) for each in sent.blocks] if sent else None,
            "local": [list(each) for each in local] or None,
        }
        base = f"/transfers/{escaped(name)}"
        self.flat |= {f"{base}/{field}": v for field, v in fields.items() if v is not None}

    def _tables(self, event: RecordedEvent, tables: dict[str, Lists]) -> None:
        self.freed = {block for change in event.tables for block in self._held(change.request)}
        for change in event.tables:
            name = change.request
            if change.at == 0:
                self._known[name].add(change.group)
            if self._known[name] >= self._groups:
                self._set(name, tables=[list(table) for table in tables.get(name, ())])
        self.freed -= {block for change in event.tables for block in self._held(change.request)}

    def _leaves(self, event: RecordedEvent) -> None:
        offered = {offer.request for offer in event.offers if any(offer.blocks)}
        gone = set(event.ended) - offered
        for change in event.tables:
            status = self.flat.get(f"{self._at(change.request)}/status")
            if status == "sending" and not self._held(change.request):
                gone.add(change.request)
        for name in gone:
            if not self._held(name):
                self._drop(self._at(name))
                self._drop(f"/transfers/{escaped(self._offer(name))}")

    def _held(self, name: str) -> set[int]:
        """Return the blocks of a request. A request that ended may still have some: its load is not
        over."""
        tables = self.flat.get(f"{self._at(name)}/tables", ())
        return {block for table in tables for block in table}


class RecordFocus(NamedTuple):
    """The requests and the blocks that findings are about. Without any, everything matters."""

    requests: Set[str]
    blocks: Set[int]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> "RecordFocus":
        """Return what these findings are about."""
        abouts = [finding.about for finding in findings]
        blocks = {about.block for about in abouts if about.block is not None}
        return cls({about.request for about in abouts if about.request}, blocks)

    def near(self, event: RecordedEvent, freed: Iterable[int]) -> bool:
        """Whether an event does more with them than to compute tokens. `freed` are the blocks that
        it takes out of block tables."""
        if not self.requests and not self.blocks:
            return True
        blocks = {block for change in event.tables for block in change.blocks} | set(freed)
        return bool(self.requests & _requests(event)) or bool(self.blocks & blocks)


def _requests(event: RecordedEvent) -> set[str]:
    """Return the requests to which more happens than that tokens are computed."""
    found = {each.request for each in event.admitted} | {each.request for each in event.preempted}
    found |= {each.request for each in event.loads} | {each.request for each in event.offers}
    found |= {change.request for change in event.tables}
    found |= {*event.released, *event.loaded, *event.received, *event.failed, *event.sent}
    return found | set(event.ended) | ({event.arrived.request} if event.arrived else set())
