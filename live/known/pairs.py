"""What goes wrong between P and D: offers, loads, writes, leases and their reports; and follow-up
turns, in which P loads from D what D has kept of an earlier turn."""

from kvproof.live.known.facts import (
    GROUPS,
    HANGS,
    admission,
    after,
    concerned,
    holders,
    loaded,
    offer,
    on_decode,
    on_prefill,
    request,
    seen,
)
from kvproof.live.known.ingredients import needs
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.config.sides import reverse_of
from kvproof.model.known_finding import known_finding
from kvproof.model.phases import Phase
from kvproof.model.state import ABORTED, LOADED, LOADING, NULL, PREEMPTED, WAITING, Engine, Request
from kvproof.model.step import Step


@known_finding(
    says="D loads nothing of a prompt that is submitted as embeddings",
    signatures=seen("offered_tokens_are_loaded", "Schedule"),
)
def embeddings_not_loaded(cluster: Cluster, step: Step, about: About) -> bool:
    """D computes the number of offered tokens from the token ids of the prompt. A prompt of
    embeddings has no token ids.

    Cause: The prompt is submitted as embeddings, and the request does not wait for a load: what it
    loads within the step comes from a store.
    """
    admitted, now = admission(step, about), request(step, about)
    waits = now is not None and now.status == LOADING
    return admitted is not None and cluster.job(about.request).embeds and not waits


@known_finding(
    says=(
        "lists of unequal kernel blocks are paired from their ends, so D's blocks receive "
        "other tokens"
    ),
    signatures=(
        seen("paired_offsets_are_equal", "Schedule", on=("full", "window"))
        | seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=("full", "window"))
        | seen("null_block_is_nobody", "Schedule", on=("window",))
    ),
    needs=needs("unequal_kernel_blocks"),
)
def end_trim_across_ratios(cluster: Cluster, step: Step, about: About) -> bool:
    """If the blocks of P and D have different numbers of kernel blocks, vLLM trims the lists at the
    front to equal length, although they do not end at the same token. Beside Mamba it pairs them
    from their fronts, although D's list begins later where its window does (as a comment in
    `_apply_prefix_caching` says): at the null block, if P's window has let that block go too.

    Cause: The finding is about blocks of D that were loaded from P's blocks of another width;
    beside Mamba, of a window that has let the beginning of the prompt go.
    """
    if not on_decode(cluster, about):
        return False
    unequal = cluster.prefill.physical_per_logical != cluster.decode.physical_per_logical
    later = not cluster.decode.has_state or _begins_later(cluster, step, about)
    return unequal and later and loaded(step, about)


def _begins_later(cluster: Cluster, step: Step, about: About) -> bool:
    """Whether the finding may be about a window, and the block table of the request, or of a
    request that holds the block, begins with a null block."""
    groups = cluster.decode.groups
    indices = range(len(groups)) if about.group is None else [about.group]
    windows = [index for index in indices if groups[index].kind == "window"]
    tables = (r.tables for r in concerned(step, about) if r.tables)
    return any(each[i][:1] == (NULL,) for each in tables for i in windows)


@known_finding(
    says="P frees blocks when its lease expires, although it still writes them to D",
    signatures=(
        seen("nothing_reused_under_transfer", "LeaseExpire")
        | seen("request_reads_its_own_prefix", "Schedule", on=GROUPS)
        | seen("state_read_is_state_at_computed", "Schedule", on=GROUPS)
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=GROUPS)
    ),
    needs=needs("losses"),
)
def lease_ends_under_writer(cluster: Cluster, step: Step, about: About) -> bool:
    """When P's lease expires, P frees the blocks that it still writes to D. D receives the content
    of their next owner.

    Cause: P's lease may expire during a write, and P still writes, or D reads what was written.
    """
    if not cluster.pushes or not cluster.losses:
        return False
    transfer = step.after.transfer(about.request)
    if on_prefill(cluster, about):
        return transfer is not None and transfer.phase == Phase.OVERDUE
    return on_decode(cluster, about) and loaded(step, about)


@known_finding(
    says="D dies on an assertion if its list of kernel blocks is longer than P's list",
    signatures=seen("engine_survives", "Schedule"),
    needs=needs("unequal_kernel_blocks"),
)
def longer_list_dies_across_ratios(cluster: Cluster, step: Step, about: About) -> bool:
    """If a block of D has more kernel blocks than a block of P, padding makes D's list longer than
    P's list. D's worker asserts that it is not longer.

    Cause: D has wider blocks and no Mamba group, and an assertion stopped it when it began to load.
    """
    wider = cluster.prefill.physical_per_logical < cluster.decode.physical_per_logical
    dead = after(step, about).dead
    died = dead is not None and dead.exception == "AssertionError"
    return on_decode(cluster, about) and wider and died and not cluster.decode.has_state


@known_finding(
    says=(
        "a second report of a transfer, or a report for a request that is gone, stops the engine"
    ),
    signatures=seen("engine_survives", "StrayReport"),
)
def stray_report_dies(cluster: Cluster, step: Step, about: About) -> bool:
    """The scheduler asserts that it knows the request of each report of a finished transfer.

    Cause: An assertion stopped the engine when it processed such a report.
    """
    dead = after(step, about).dead
    return cluster.stray and dead is not None and dead.exception == "AssertionError"


@known_finding(
    says="D does not report to P that it needs nothing of a request, and P keeps the blocks",
    signatures=seen(
        "nothing_kept_for_nobody",
        "Schedule",
        "Complete",
        "Continue",
        "Abort",
        "TransferFail",
        "LeaseExpire",
    )
    | seen("transfer_follows_the_table", "Complete", "Continue"),
)
def unneeded_prefill_is_not_reported(cluster: Cluster, step: Step, about: About) -> bool:
    """D does not report to P what it does not need, and P keeps its blocks until the lease expires.

    Cause: P has finished a request that D runs, or has ended, without a load.
    """
    offered = step.after.phase(about.request) == Phase.OFFERED
    unnoticed = step.before.phase(about.request) == Phase.AWAITED
    return cluster.pushes and on_decode(cluster, about) and (offered or unnoticed)


@known_finding(
    says=(
        "the load omits the block before the window of the loaded tokens, and D's first "
        "token reads it"
    ),
    signatures=seen("null_block_is_nobody", "Schedule", on=("window",)),
)
def window_of_loaded_tokens(cluster: Cluster, step: Step, about: About) -> bool:
    """vLLM computes the needed window from all tokens that D loads. D computes the last token
    again, and this token reads one token further to the left.

    Cause: The request has loaded its whole prompt and computes its last token again, without a
    Mamba group.
    """
    cfg = cluster.engine(about.engine)
    before = step.before.engine(about.engine).find(about.request)
    if before is None or not before.external or before.output or cfg.has_state:
        return False
    return before.computed >= len(before.tokens) - 1


OVER = (Phase.CLOSED, Phase.ABANDONED)
"""The phases of a transfer that brings no more blocks."""
WAITS = (WAITING, PREEMPTED, LOADING, ABORTED)


@known_finding(
    says="D offers tokens after the end of its answer for the next turn",
    signatures=(
        seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=GROUPS)
        | seen("prefill_and_decode_agree", "Schedule")
    ),
    needs=needs("computing_ahead"),
)
def held_goes_beyond_answer(cluster: Cluster, step: Step, about: About) -> bool:
    """D counts tokens that it computed after the end of its answer as tokens that it keeps for the
    next turn.

    Cause: P loads from a D that computes ahead: with a drafter or with overlapping steps.
    """
    ahead = cluster.decode.drafts > 0 or cluster.decode.overlaps
    return cluster.follow_up_turns and ahead and on_prefill(cluster, about) and loaded(step, about)


@known_finding(
    says="P asks a second time for the tokens that D keeps, and no second read begins",
    signatures=seen("load_is_offered", "Schedule") | HANGS,
)
def held_is_loaded_again(cluster: Cluster, step: Step, about: About) -> bool:
    """P asks a second time for the tokens that D keeps. vLLM starts only one transfer per request.

    Cause: P begins to load from a completed transfer. Or no request runs on P, and a follow-up turn
    with a completed transfer waits for its load, or for room to begin it, or holds with its load
    the room that the request of the finding waits for.
    """
    if not cluster.follow_up_turns:
        return False
    engine = step.after.engine(cluster.prefill.name)
    if about.request:
        if not on_prefill(cluster, about):
            return False
        offered = offer(cluster, step, about)
        request = engine.find(about.request)
        lacks_room = request is not None and request.status in (WAITING, PREEMPTED)
        if offered is None or offered.phase in (*OVER, Phase.READING, Phase.REFUSED):
            return True
        return lacks_room and _over(cluster, step, engine, (LOADING,))
    return _over(cluster, step, engine, WAITS)


def _over(cluster: Cluster, step: Step, engine: Engine, statuses: tuple[str, ...]) -> bool:
    """Whether no request runs, and a follow-up turn with one of these statuses waits although its
    transfer has completed."""
    waiting = [r.id for r in engine.requests if r.status in statuses and cluster.job(r.id).follows]
    transfers = (step.after.transfer(reverse_of(cluster.job(name).follows)) for name in waiting)
    return not engine.running and any(t is None or t.phase in OVER for t in transfers)


@known_finding(
    says="P pairs D's list from its end, although the list continues after P's prompt",
    signatures=(
        seen("paired_offsets_are_equal", "Schedule", on=("full", "window"))
        | seen("null_block_is_nobody", "Schedule", on=("window",))
        | seen("prefill_and_decode_agree", "Schedule")
        | seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=("full", "window"))
    ),
)
def held_list_ends_with_prompt(cluster: Cluster, step: Step, about: About) -> bool:
    """P assumes that the list of D's blocks ends at the end of P's prompt. D has computed further.

    Cause: P loads from an earlier turn of D, and D has computed more tokens than the prompt of this
    turn has. Where that is about no group, there are no states, which cannot be loaded in part.
    """
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
    """The name of the transfer from which a follow-up turn on P loads."""
    return reverse_of(cluster.job(request.id).follows)


@known_finding(
    says="P continues from the state after D's answer as if it were the state of its own prompt",
    signatures=(
        seen("prefill_and_decode_agree", "Schedule")
        | seen("null_block_is_nobody", "Schedule", on=("mamba",))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=("mamba",))
    ),
)
def held_state_is_of_the_prompt(cluster: Cluster, step: Step, about: About) -> bool:
    """P loads D's state as the state of P's prompt. It is the state after D's answer. P computes
    the last token of its prompt again, from a state before it: where that is of an earlier block,
    it was never loaded.

    Cause: P loads a Mamba state from an earlier turn of D, or D loads what P has made of it.
    """
    states = any(group.kind == "mamba" for group in cluster.prefill.groups)
    if not (cluster.follow_up_turns and states and loaded(step, about)):
        return False
    later = any(cluster.job(each.id).follows for each in concerned(step, about))
    return later or on_prefill(cluster, about)


@known_finding(
    in_vllm="NixlPullConnectorScheduler.get_num_new_matched_tokens",
    says="P asks a second time for a turn of one token that it has loaded, and no read begins",
    signatures=(
        seen("computed_tokens_are_those_scheduled", "Schedule")
        | seen("status_follows_the_event", "Schedule")
        | seen("counter_counts_only_cached", "Schedule", on=("full", "window", "mamba"))
    ),
)
def one_token_turn_is_loaded_again(cluster: Cluster, step: Step, about: About) -> bool:
    """A turn of one token that P has loaded counts no token as computed, because the last token of
    a prompt is computed again. vLLM then takes it for a new request, and asks a second time.

    Cause: A follow-up turn of one token, which P has loaded, waits for its load once more.
    """
    if not (cluster.follow_up_turns and on_prefill(cluster, about) and about.request):
        return False
    was = step.before.engine(about.engine).find(about.request)
    now = step.after.engine(about.engine).find(about.request)
    if was is None or now is None or not cluster.job(was.id).follows:
        return False
    again = (was.status, now.status) == (LOADED, LOADING)
    return again and len(was.tokens) == was.computed == now.computed == 1
