"""This module keeps the last events of a watched engine, as notes.

A note is a small tuple: the name of its field in a record, and values that nothing changes any
more, or that vLLM keeps for itself. Notes become a record only when somebody asks for it.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

from kvproof.model.events import Admit, FinishLoad, Preempt
from kvproof.model.finding import Finding
from kvproof.model.hit_rows import HitRow
from kvproof.model.records.lines import BlockSums, Method
from kvproof.watch.event_notes import EventNotes

KEPT = 1000
"""The number of events that are kept."""

METHODS: tuple[str, ...] = get_args(Method)
"""The events that are kept."""

LOADING = ("NixlConnectorMetadata",)
"""What connectors give to their worker, where the loads in it are noted. Others have another
form."""

Note = tuple[Any, ...]

STEP = ("schedule", "update_from_output")
"""The events of a step."""

NOTHING: Note = ("tokens", {})
"""What is noted of a step that computes nothing."""

REPORTS = {
    "received": "finished_recving",
    "failed": "failed_recving",
    "sent": "finished_sending",
}
"""The reports of a connector's worker: their names in a record, and in vLLM's output."""


class NotedEvent(NamedTuple):
    """An event that is over."""

    step: int
    at_s: float
    method: str
    notes: list[Note]
    raised: str


class History:
    """Keep the last `KEPT` events. `events_ended` counts all of them, and `from_start` says that
    nothing had happened to the engine before.

    An engine that waits for a transfer goes on with steps that do nothing, a thousand in a second.
    Of such steps one after the other only the first is an event here: how many they are depends on
    the speed of the machine, and they would push all else out. `_held` is the beginning of such a
    step, until its output has shown that it does nothing either.
    """

    def __init__(self, *, from_start: bool) -> None:
        self.from_start = from_start
        self.events_ended = 0
        self.events: deque[NotedEvent] = deque(maxlen=KEPT)
        self._notes: list[Note] = []
        self._held: tuple[float, str, list[Note], str] | None = None

    def note(self, field: str, *values: Any) -> None:
        """Note something about the event that runs now."""
        self._notes.append((field, *values))

    def end(self, event: EventNotes, error: Exception | None = None) -> None:
        """Keep the notes of the event that is over, and the exception that it raised."""
        if event.what in METHODS:
            self._choices(event)
            self._results(event)
            raised = "" if error is None else f"{type(error).__name__}: {error}"
            ended = time.monotonic(), event.what, self._notes, raised
            idle = not raised and all(note == NOTHING for note in self._notes)
            if idle and event.what == STEP[0] and self._idles():
                self._held = ended
            elif idle and event.what == STEP[1] and self._held:
                self._held = None
            else:
                self._keep_held()
                self._keep(*ended)
        self._notes = []

    def _idles(self) -> bool:
        """Whether the last event was a whole step that did nothing."""
        last = [self.events[at] for at in (-2, -1)] if len(self.events) > 1 else []
        did = [note for event in last for note in event.notes if note != NOTHING]
        return [event.method for event in last] == [*STEP] and not did and not self._held

    def _keep_held(self) -> None:
        """Keep the step whose beginning is held: it did something after all."""
        held, self._held = self._held, None
        if held:
            self._keep(*held)

    def _keep(self, *ended: Any) -> None:
        self.events_ended += 1
        self.events.append(NotedEvent(self.events_ended, *ended))

    def found(self, finding: Finding) -> None:
        """Add a finding to the last event."""
        self._keep_held()
        if self.events:
            self.events[-1].notes.append(("finding", finding))

    def sums(self, moved: BlockSums) -> None:
        """Add the sums of blocks that go from one engine to another to the last event."""
        self._keep_held()
        if self.events:
            self.events[-1].notes.append(("block_sums", moved))

    def row(self, request: str, row: HitRow) -> None:
        """Add what became of tokens that a request shares with earlier ones to the last event."""
        if self.events:
            self.events[-1].notes.append(("shared", request, row))

    # What is noted of arguments and results of vLLM.

    def arrives(self, request: Any) -> None:
        """Note that a request arrives."""
        params = getattr(request, "kv_transfer_params", None)
        self.note(
            "arrived",
            request.request_id,
            request.num_prompt_tokens,
            request.max_tokens,
            request.priority,
            not getattr(request, "skip_reading_prefix_cache", False),
            bool(getattr(request, "resumable", False)),
            dict(params) if params else None,
        )

    def table(self, name: str, group: int, old: Sequence[Any], new: Sequence[Any]) -> None:
        """Note what has changed in the block table of a request. Most tables only grow."""
        at = len(old)
        if new[:at] != old:
            pairs = enumerate(zip(old, new, strict=False))
            at = next((i for i, (was, now) in pairs if was is not now), min(at, len(new)))
        if at < max(len(old), len(new)):
            self.note("tables", name, group, at, [block.block_id for block in new[at:]])

    def scheduled(self, output: Any) -> None:
        """Note what a step computes, and the loads that the connector's worker gets."""
        self.note("tokens", output.num_scheduled_tokens)
        metadata = output.kv_connector_metadata
        if type(metadata).__name__ in LOADING:
            for name, meta in metadata.reqs_to_recv.items():
                self.note("loads", name, meta.local_block_ids)

    def completed(self, scheduled: Any, output: Any, results: Any) -> None:
        """Note what a step has computed, and what became of its requests."""
        silent = dict(scheduled.num_scheduled_tokens)
        self.note("tokens", scheduled.num_scheduled_tokens)
        reported = getattr(output, "kv_connector_output", None)
        if reported is not None:
            for field, name in REPORTS.items():
                if ended := getattr(reported, name, None):
                    self.note(field, tuple(ended))
        for client in results.values() if isinstance(results, Mapping) else ():
            for each in client.outputs:
                silent.pop(each.request_id, None)
                if len(each.new_token_ids) != 1:
                    self.note("outputs", each.request_id, len(each.new_token_ids))
                if each.finish_reason is not None:
                    self.note("ended", each.request_id, str(each.finish_reason))
                if each.kv_transfer_params:
                    self.note("offers", each.request_id, each.kv_transfer_params)
        for name in silent:
            self.note("outputs", name, 0)

    def _choices(self, event: EventNotes) -> None:
        """Note what a step does to requests: admissions, preemptions and loads that are over."""
        for choice in event.choices:
            match choice:
                case Admit():
                    self.note("admitted", choice.request, choice.local_hit, choice.external)
                case Preempt():
                    self.note("preempted", choice.request, choice.needy)
                case FinishLoad():
                    self.note("loaded", choice.request)

    def _results(self, event: EventNotes) -> None:
        """Note what an event other than a step was called for, and its result."""
        args = event.args
        if event.what == "reset_prefix_cache":
            running = args[0] if args else event.named.get("reset_running_requests", False)
            self.note("reset", bool(running), bool(event.result))
        elif event.what == "evict_blocks":
            self.note("evicted", tuple(args[0] if args else event.named["block_ids"]))
        elif event.what == "finish_requests":
            status = args[1] if len(args) > 1 else event.named.get("finished_status", "")
            why = str(getattr(status, "name", status)).removeprefix("FINISHED_").lower()
            for each in event.result or ():
                name = getattr(each, "request_id", None) or each[0]  # older releases return pairs
                self.note("ended", name, why)
