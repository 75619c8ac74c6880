"""Old names in traces of schema 2 and older, with their current names."""

import re
from typing import Any

from kvproof.model.config import REVERSE

EVENTS = {"Adopt": "FinishLoad"}
OPTIONS = {"turns": "follow_up_turns"}
FIELDS = {
    "asked": "submitted_prompt_tokens",
    "counted": "num_cached_blocks",
    "junction": "shared_prefix_boundary",
}
PHASES = {"telling": "releasing", "taken": "closed"}
TRANSFER_EVENTS = ("TransferDone", "TransferFail", "TransferLost", "LeaseExpire")
IDS = {
    "handed_over_is_loaded": "offered_tokens_are_loaded",
    "events_tell_their_tokens": "events_carry_their_tokens",
    "window_let_go_too_soon": "window_freed_too_soon",
    "window_let_go_in_flight": "window_freed_in_flight",
    "running_state_let_go": "running_state_freed",
    "junction_inside_a_block": "shared_prefix_boundary_inside_a_block",
    "retention_drops_junction": "retention_drops_shared_prefix_boundary",
    "proof_before_the_last_token": "eagle_drop_before_the_last_token",
    "proof_block_not_cached": "eagle_drop_block_not_cached",
    "removal_of_one_copy_told": "removal_of_one_copy_reported",
    "unneeded_prefill_is_not_told": "unneeded_prefill_is_not_reported",
    "read_is_not_heard_of": "read_is_not_reported",
}
"""Faults, findings and invariants."""

_HISTORY = (
    (re.compile(r"(/engines/[^/]+)/(served|mirror)"), r"\1/ghost/\2"),
    (re.compile(r"(/engines/[^/]+)/requests/([^/]+)/shared"), r"\1/ghost/shared/\2"),
)
"""Old pointers of ghost state, which was part of the observed state."""

_FIELD = re.compile(r"(/engines/[^/]+/requests/[^/]+)/(\w+)")
_TRANSFER = re.compile(r"/transfers/([^/]+)/(\w+)")
_BACK = " back"
"""The end of the old name of a reverse transfer."""


def id_of(name: Any) -> Any:
    """The current id of a fault or an invariant; any other value unchanged."""
    return IDS.get(name, name) if isinstance(name, str) else name


def choice(kind: Any) -> Any:
    """The current name of a kind of choice; any other value unchanged."""
    return EVENTS.get(kind, kind) if isinstance(kind, str) else kind


def transfer(name: Any) -> Any:
    """The current name of a transfer; any other value unchanged."""
    is_reverse = isinstance(name, str) and name.endswith(_BACK)
    return name.removesuffix(_BACK) + REVERSE if is_reverse else name


def event(written: Any) -> Any:
    """An event with the current name of its transfer; any other value unchanged."""
    if not isinstance(written, dict) or written.get("type") not in TRANSFER_EVENTS:
        return written
    return written | {"request": transfer(written.get("request"))}


def finding(found: dict[str, Any]) -> dict[str, Any]:
    """A finding with the current names of its invariant and its transfer."""
    renamed = {"invariant": id_of(found["invariant"])} if "invariant" in found else {}
    about = found.get("about")
    if isinstance(about, dict) and "request" in about:
        renamed["about"] = about | {"request": transfer(about["request"])}
    return found | renamed


def pointer(at: Any) -> Any:
    """The current JSON Pointer for an old or current one; any other value unchanged."""
    if not isinstance(at, str):
        return at
    for was, now in _HISTORY:
        if was.fullmatch(at):
            return was.sub(now, at)
    part = _TRANSFER.fullmatch(at)
    if part:
        return f"/transfers/{transfer(part[1])}/{part[2]}"
    field = _FIELD.fullmatch(at)
    return f"{field[1]}/{FIELDS.get(field[2], field[2])}" if field else at


def value(at: Any, found: Any) -> Any:
    """The current value for an old value at a pointer."""
    part = _TRANSFER.fullmatch(at) if isinstance(at, str) else None
    if part and isinstance(found, str):
        return PHASES.get(found, found) if part[2] == "phase" else transfer(found)
    is_status = isinstance(at, str) and at.endswith("/status")
    return "misqueued" if is_status and found == "astray" else found
