"""These parts show blocks that a connector reads or writes beside the steps."""

from collections.abc import Iterator
from typing import Any

from kvproof.model.phases import Phase
from kvproof.model.state import LOADING, NULL, SENDING, Engine, Lists, Request, Transfer
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class Transfers(Part):
    """Each load and each send that an event touches, with the request that must keep the blocks.

    A load lasts from its admission until the connector reports its end. A send lasts from the end
    of its request, for which the connector keeps the blocks, until its report: whether somebody
    reads them at the moment, one engine does not know."""

    view = Views.TRANSFERS

    def __init__(self, seen: Any) -> None:
        super().__init__(seen)
        self.loads: dict[str, Lists] = {}
        self.sends: dict[str, Lists] = {}

    def questions(self) -> Iterator[Question]:
        """Ask about one transfer after the other."""
        self._ended()
        self._begun()
        for name in self.seen.touched if self.loads or self.sends else ():
            for known in (self.loads, self.sends):
                if name in known:
                    yield self._transfer(name, known)

    def _transfer(self, name: str, known: dict[str, Lists]) -> Question:
        live, watched = self.scheduler.requests.get(name), self.seen.requests.get(name)
        lists = known[name]
        requests: tuple[Request, ...] = ()
        if live is None or watched is None:
            del known[name]  # it is reported once
        else:
            tables = tuple(
                tuple(block.block_id for block in table if block.block_id in blocks)
                for table, blocks in zip(watched.tables, map(set, lists), strict=True)
            )
            requests = (Request(name, self.slices.status(live), "", 0, 0, tables=tables),)
        remote, local = ((), lists) if known is self.loads else (lists, ())
        transfer = Transfer(name, Phase.READING, 0, remote, local)
        engine = Engine(self.cfg.name, (), (), requests=requests)
        return self.question(engine, transfers=(transfer,))

    def _begun(self) -> None:
        """Note the transfers that begin: a load with an admission, a send with the end of a
        request."""
        for lookup in self.seen.event.lookups:
            name, watched = lookup.watched.live.request_id, lookup.watched
            if lookup.external and self.slices.status(watched.live) == LOADING:
                self.loads[name] = watched.loads
        if self.seen.event.what == "update_from_output" and self.scheduler.connector is not None:
            for watched in self.seen.touched_requests():
                name = watched.live.request_id
                if self.slices.status(watched.live) == SENDING and any(watched.tables):
                    self.sends.setdefault(name, tuple(map(_ids, watched.tables)))

    def _ended(self) -> None:
        """Note the transfers whose end the output of a step reports."""
        event = self.seen.event
        if event.what != "update_from_output" or not (self.loads or self.sends):
            return
        answer = event.args[1] if len(event.args) > 1 else event.named["model_runner_output"]
        report = answer.kv_connector_output
        for kind in ("finished_recving", "finished_sending", "failed_recving"):
            for name in getattr(report, kind, None) or ():
                self.loads.pop(name, None)
                self.sends.pop(name, None)


def _ids(table: list[Any]) -> tuple[int, ...]:
    return tuple(block.block_id for block in table if block.block_id != NULL)


class Offers(Part):
    """The transfer parameters of a request that ends."""

    view = Views.OFFERS

    def questions(self) -> Iterator[Question]:
        """Ask about one offer after the other."""
        for name, computed, params in self.seen.event.offers:
            if params.get("do_remote_prefill") or params.get("do_remote_decode"):
                tokens = params.get("remote_num_tokens", computed)
                groups = params.get("remote_block_ids") or ()
                lists = tuple(tuple(map(int, group)) for group in groups)
                yield self.question(transfers=(Transfer(name, Phase.OFFERED, tokens, lists),))
