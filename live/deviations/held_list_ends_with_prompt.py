"""P assumes that the list of D's blocks ends at the end of P's prompt. D has computed further."""

from kvproof.live.deviations.facts import after, holders, on_prefill, request, seen
from kvproof.model.because import About
from kvproof.model.config import REVERSE, Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import Request
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """P loads from an earlier turn of D, and D has computed more tokens than the prompt of this
    turn has. Where that is about no group, there are no states, which cannot be loaded in part."""
    if not cluster.follow_up_turns or not on_prefill(cluster, about):
        return False
    if about.group is None and any(g.kind == "mamba" for g in cluster.prefill.groups):
        return False
    known = request(step, about)
    turns = [r for r in after(step, about).requests if _reads(cluster, r) == about.request]
    for each in [known] if known is not None else turns or holders(step, about):
        transfer = step.before.transfer(_reads(cluster, each))
        if each.external and transfer is not None and transfer.tokens > len(each.prompt):
            return True
    return False


def _reads(cluster: Cluster, request: Request) -> str:
    """The name of the transfer from which a turn on P loads."""
    return cluster.job(request.id).follows + REVERSE


DEVIATION = Deviation(
    name="held_list_ends_with_prompt",
    says="P pairs D's list from its end, although the list continues after P's prompt",
    signatures=(
        seen("paired_offsets_are_equal", "Schedule", on=("full", "window"))
        | seen("null_block_is_nobody", "Schedule", on=("window",))
        | seen("prefill_and_decode_agree", "Schedule")
        | seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=("full", "window"))
    ),
    at_work=at_work,
)
