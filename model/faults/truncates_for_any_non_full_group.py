"""The first version of vllm#37310 checked `_is_hma_required`, which is true for a sliding window
too. The KV of a window has no running state, so P must not truncate the prompt, and D does not
expect it."""

from kvproof.model.faults.fault import Fault


def for_any_other_group(kinds: tuple[str, ...], embeds: bool) -> int:  # noqa: ARG001
    """One token if any group is not full attention."""
    return 1 if any(kind != "full" for kind in kinds) else 0


FAULT = Fault(
    name="truncates_for_any_non_full_group",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._truncate_request_for_prefill",
    mistake="P truncates for any group that is not full attention, so window groups lose a token",
    replaces={"reference.transfers.offers:backoff_on_prefill": for_any_other_group},
    breaks=("prefill_and_decode_agree",),
    cluster="pd-window",
    trace_events=5,
)
