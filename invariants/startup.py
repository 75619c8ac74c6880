"""The start-up of an engine: what its memory becomes, and what it then serves."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.model.because import Judged, Reason, because, choice, holds, holds_if, reason
from kvproof.model.facts.startup import LoneStep, StartedGroup, StartedWorker, Startup
from kvproof.model.plans.engine import KEEP_ALL, WINDOWS
from kvproof.model.severity import Severity


@check(
    "an engine that starts serves a request of its largest length",
    origin="_check_enough_kv_cache_memory; vllm#36030, vllm#41069, vllm#40946",
    severity=Severity.HANG,
)
def admitted_length_is_served(start: Startup) -> Iterator[Judged]:
    """An engine that starts has promised that a request of the largest length fits. If it does not,
    the request waits for ever, and so do all requests behind it. So the planning must count the
    null block, each group, and the memory of each worker (vllm#36030, vllm#41069, vllm#40946)."""
    if start.run is None:
        return
    yield holds_if(start.run.ended) or because(
        reason(
            "accepts",
            "an engine with {blocks} blocks (one of them the null block) accepts requests of "
            "{tokens} tokens",
            blocks=start.num_blocks,
            tokens=start.run.tokens,
        ),
        reason(
            "waits",
            "such a request, alone, has computed {computed} tokens and waits for ever; it "
            "lacks {lacks} blocks",
            computed=start.run.computed,
            lacks=start.lacks,
        ),
    )


@check(
    "a request that runs alone has a block for each token that the tokens of a step read",
    origin="SingleTypeKVCacheManager.remove_skipped_blocks; vllm#46564",
    severity=Severity.WRONG_TOKENS,
)
def read_tokens_have_blocks(start: Startup) -> Iterator[Judged]:
    """Blocks behind a window, or between a prompt and a window of its answer (vllm#46564), are
    freed while their request runs, and the null block stands in their place. If one is freed too
    early, attention reads the null block as if it had the tokens."""
    run = start.run
    for step in run.steps if run else ():
        for number, group in enumerate(start.groups):
            size = group.block * start.plan.shards
            needed = {at // size for at in _read(group, step, run.prompt if run else 0)}
            lacking = needed - step.held[number]
            yield holds_if(not lacking, len(needed)) or because(
                reason(
                    "reads",
                    "tokens {first} to {last}, after a prompt of {prompt}, read block {entry} of "
                    "group {group} ({kind}, {window} tokens)",
                    first=step.first,
                    last=step.end - 1,
                    prompt=run.prompt if run else 0,
                    entry=min(lacking),
                    group=number,
                    kind=group.kind,
                    window=group.window or "all",
                ),
                reason("freed", "the null block stands in its place"),
            )


def _read(group: StartedGroup, step: LoneStep, prompt: int) -> Iterator[int]:
    """The tokens that the tokens of a step read in a group with a block for each token; none of
    other groups."""
    if group.kind in KEEP_ALL:
        yield from range(step.end)
    elif group.kind == "chunked":
        yield from range(step.first - step.first % group.window, step.end)
    elif group.kind in (*WINDOWS, "rswa"):
        yield from range(max(step.first - group.window + 1, 0), step.end)
    if group.kind == "rswa":
        yield from range(min(prompt, step.end))


@check(
    "what has enough memory is not refused, and is not cut short",
    origin="_auto_fit_max_model_len; vllm#33698",
    severity=Severity.LOST_PERFORMANCE,
    of_dead=True,
)
def enough_memory_is_accepted(start: Startup) -> Iterator[Judged]:
    """An engine with memory for a request of the largest length starts, and a length that is fitted
    to the memory is not much smaller than what fits (vllm#33698). What is enough is a bound that no
    engine has to exceed: all tokens of a request in each group, or those of its window and of the
    steps in flight, in whole blocks, two more for each group, and the null block."""
    if start.blocks is None or not start.groups or start.died:
        return
    wanted = start.plan.max_model_len
    fits = next((n for n in range(wanted, 0, -1) if start.enough_for(n) <= start.blocks), 0)
    if fits < (1 if start.plan.auto else wanted):
        return
    room = reason(
        "room",
        "each worker has {blocks} blocks, and {enough} are enough for {tokens} tokens",
        blocks=start.blocks,
        enough=start.enough_for(fits),
        tokens=fits,
    )
    served = not start.refused and start.max_model_len >= fits
    yield holds_if(served) or because(room, _not_served(start))


def _not_served(start: Startup) -> Reason:
    """What became of an engine that was to have requests of some length."""
    if start.refused:
        return reason("does_not_start", "vLLM refuses: {words}", words=start.refused)
    return reason("cut", "the length is fitted to {tokens} tokens", tokens=start.max_model_len)


@check(
    "an engine asks for no more blocks than its longest request holds",
    origin="_check_enough_kv_cache_memory, _auto_fit_max_model_len",
    severity=Severity.LOST_PERFORMANCE,
    of_dead=True,
    ideal=True,
)
def needed_blocks_are_enough(start: Startup) -> Iterator[Judged]:
    """A user whose memory has room for a request of the largest length, and for the null block,
    wants an engine. An ideal, because the planning counts with a bound before any request runs: a
    planning that asks for more than before is told beside its base."""
    plan = start.plan
    if start.blocks is None or plan.counted_from != "need" or plan.blocks < 0 or start.died:
        return  # cannot be judged: nobody knows whether the request fits
    yield holds_if(not start.refused and start.max_model_len >= plan.max_model_len) or because(
        reason(
            "held",
            "each worker has {blocks} blocks, and a request of {tokens} tokens, alone, held no "
            "more, with the null block",
            blocks=start.blocks,
            tokens=plan.max_model_len,
        ),
        _not_served(start),
        excuses=(choice("the planning counts with a bound, before any request runs"),),
    )


@check(
    "with plenty of memory, an engine starts",
    origin="get_kv_cache_groups; vllm#48776",
    severity=Severity.LOST_PERFORMANCE,
    of_dead=True,
    of_two=True,
)
def plenty_of_memory_is_enough(start: Startup) -> Iterator[Judged]:
    """Layers of kinds that vLLM serves may have pages that share no common size, as a drafter with
    windows beside a model with latent attention (vllm#48776), and cannot be laid out as they are.
    vLLM refuses some models for this reason. If another release serves the model, the refusal is
    needless: no amount of memory gives its user an engine."""
    if start.blocks is not None:
        return
    yield holds_if(not start.refused, start.accepted) or because(
        reason("plenty", "each worker has plenty of memory"), _not_served(start)
    )


@check(
    "an engine has as many blocks as its poorest worker has memory for",
    origin="get_kv_cache_configs",
    severity=Severity.LOST_PERFORMANCE,
)
def memory_becomes_blocks(start: Startup) -> Iterator[Judged]:
    """Memory that no block uses is KV that is computed again. The worker with the least memory sets
    the number of blocks; less than one of its blocks may be left over, and one more that vLLM is
    free to keep back."""
    if start.plan.override or start.blocks is None:
        return
    yield holds_if(start.num_blocks >= start.blocks - 1) or because(
        reason("room", "each worker has memory for {blocks} blocks", blocks=start.blocks),
        reason("made", "the engine has {blocks}", blocks=start.num_blocks),
    )


@check(
    "no worker has to allocate more than the memory that it has",
    origin="get_kv_cache_config_from_groups",
    severity=Severity.CRASH,
)
def memory_is_not_exceeded(start: Startup) -> Iterator[Judged]:
    """A worker allocates the tensors of its config. If these take more than its memory, the worker
    dies, or another process that needed the memory does."""
    if start.plan.override:
        return
    for index, worker in enumerate(start.workers):
        allocated = sum(worker.buffers)
        yield holds_if(allocated <= worker.memory_bytes) or because(
            reason(
                "has",
                "worker {worker} has {memory} bytes for KV caches",
                worker=index,
                memory=worker.memory_bytes,
            ),
            reason("allocates", "it has to allocate {bytes}", bytes=allocated),
        )


@check(
    "an engine with num_gpu_blocks_override has this number of blocks",
    origin="may_override_num_blocks; vllm#41069",
    severity=Severity.CRASH,
)
def override_is_the_number(start: Startup) -> Iterator[Judged]:
    """A user who sets `num_gpu_blocks_override` has this number of blocks, with any memory
    (vllm#41069)."""
    if not start.plan.override or start.blocks is None:
        return
    yield holds_if(start.blocks == start.num_blocks) or because(
        reason("set", "num_gpu_blocks_override is {blocks}", blocks=start.blocks),
        reason("made", "the engine has {blocks} blocks", blocks=start.num_blocks),
    )


@check(
    "the concurrency that is reported is what fits",
    origin="get_max_concurrency_for_kv_cache_config; vllm#48317",
    severity=Severity.LOST_PERFORMANCE,
)
def concurrency_is_what_fits(start: Startup) -> Iterator[Judged]:
    """Users read from the log how many of the longest requests fit, and size a deployment by it:
    where fewer fit, they preempt each other, and KV is computed again. One request held so many
    blocks when it ran alone: no more fit than blocks are there for them, and not fewer than a bound
    allows that no engine has to exceed (vllm#48317). Of each Mamba group a state for each step in
    flight may be held between two steps alone, with drafts one more: those of a step may fill a
    block."""
    if start.concurrency is None or start.run is None or not start.run.held_max:
        return
    tokens = start.max_model_len
    least = (start.num_blocks - 1) / (start.enough_for(tokens) - 1)
    steps = start.in_flight_tokens // start.plan.chunk_tokens + bool(start.plan.drafts)
    between = sum(group.kind == "mamba" for group in start.groups) * steps
    most = start.num_blocks / max(start.run.held_max - between, 1)
    yield holds_if(least <= start.concurrency <= most) or because(
        reason(
            "fits",
            "{blocks} blocks; a request of {tokens} tokens held {held}, and {enough} are "
            "enough for it",
            blocks=start.num_blocks,
            tokens=tokens,
            held=start.run.held_max,
            enough=start.enough_for(tokens) - 1,
        ),
        reason(
            "reported",
            "vLLM reports that {times} such requests fit",
            times=f"{start.concurrency:.2f}",
        ),
    )


@check(
    "as many of the longest requests as vLLM reports to fit run at once, and none is preempted",
    origin="get_max_concurrency_for_kv_cache_config; KVCacheManager.allocate_slots; vllm#49878",
    severity=Severity.LOST_PERFORMANCE,
)
def reported_concurrency_is_served(start: Startup) -> Iterator[Judged]:
    """What several requests hold together is not more than what each of them may hold alone. If one
    of them is preempted all the same, its tokens are computed again; if they wait for each other,
    none is ever answered. What vLLM reports is rounded, and leaves out what steps in flight hold
    beyond a window (vllm#49878)."""
    several = start.together
    if several is None:
        return
    most = several.number * (start.enough_for(start.max_model_len) - 1)
    if several.ended and not several.preempted:
        yield holds(several.number)
    else:
        beyond = several.ended and most >= start.num_blocks
        yield because(
            reason(
                "reported",
                "of {blocks} blocks, vLLM reports that {number} requests of {tokens} tokens fit; "
                "{most} are enough for these",
                blocks=start.num_blocks,
                number=several.number,
                tokens=start.max_model_len,
                most=most,
            ),
            reason("preempted", "one was preempted {times} times", times=several.preempted)
            if several.ended
            else reason("waits", "not all of them have ended, and nothing is computed"),
            excuses=[choice("with their steps in flight, so many may need more")] * beyond,
        )


@check(
    "workers receive the largest length that was fitted to the memory",
    origin="_initialize_kv_caches; vllm#31260",
    severity=Severity.BOOKKEEPING,
)
def workers_know_the_length(start: Startup) -> Iterator[Judged]:
    """Workers make their buffers before the memory is known. If vLLM then fits the largest length
    to the memory, it informs them (vllm#31260)."""
    known = start.known_tokens or start.plan.max_model_len
    yield holds_if(known == start.max_model_len) or because(
        reason("fitted", "requests have at most {tokens} tokens", tokens=start.max_model_len),
        reason("known", "the workers know of {tokens}", tokens=known),
    )


@check(
    "all workers have as many blocks as the scheduler gives out, in the same groups",
    origin="generate_scheduler_kv_cache_config",
    severity=Severity.CRASH,
)
def blocks_are_the_same_everywhere(start: Startup) -> Iterator[Judged]:
    """One scheduler gives out block ids for all workers. A worker with fewer blocks would be asked
    for blocks that it does not have; with other groups, it would read another table."""
    for index, worker in enumerate(start.workers):
        if worker.num_blocks != start.num_blocks:
            yield because(
                reason("gives", "the scheduler gives out {blocks} blocks", blocks=start.num_blocks),
                reason(
                    "has",
                    "worker {worker} has {blocks}",
                    worker=index,
                    blocks=worker.num_blocks,
                ),
            )
        elif _shapes(worker) != _shapes(start.workers[0]):
            yield because(
                reason("one", "worker 0 has groups {groups}", groups=_shapes(start.workers[0])),
                reason(
                    "other", "worker {worker} has {groups}", worker=index, groups=_shapes(worker)
                ),
            )
        else:
            yield holds()


def _shapes(worker: StartedWorker) -> str:
    """What the block tables of a worker's groups keep. A worker may have none of the layers of a
    group. MLA, hidden states and attention with sinks keep the same tokens as full attention."""
    kinds = [("full" if g.kind in KEEP_ALL else g.kind, g) for g in worker.groups]
    return ", ".join(f"{kind} in blocks of {g.block}" for kind, g in kinds)
