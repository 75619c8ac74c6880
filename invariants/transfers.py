"""What must be true of KV transfers between P and D, and of loads that fail."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.invariants.parties import WRITTEN, blocks_filled, blocks_sent, kernel_block
from kvproof.model.because import Excuse, Judged, Reason, because, choice, holds, holds_if, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.config.sides import Side, giver, incoming, is_reverse, taker
from kvproof.model.events import Complete
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import ABORTED, COUNTS, LOADING, SENDING, Engine, State, Table
from kvproof.model.step import Step

LOADS_A_PART = choice("of what D has computed, P loads the part that its prompt needs")
MOVED_ON = choice("a window or a state of D has moved on behind this prompt")

FILLING = (Phase.READING, Phase.OVERDUE)
"""Phases in which the receiver's blocks are being filled."""


@check(
    "P and D agree on N-1: P sends as many tokens as D counts as computed",
    origin="vllm#37310",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.LOADED_FROM_P,),
)
def prefill_and_decode_agree(state: State, cluster: Cluster) -> Iterator[Judged]:
    """P sends the KV and the state of the tokens that it has computed, and D continues after the
    tokens that it counts as loaded. With one token too many or too few on one side, a token is
    applied twice or is lost (vllm#37310). A Mamba model then continues from a wrong state.

    P's computed tokens equal D's computed tokens after the load. In a reverse transfer, P may load
    a part if all groups are full attention.
    """
    for transfer in state.transfers:
        if transfer.phase not in FILLING:
            continue
        source, sent = giver(cluster, transfer.request)
        sink, taken = taker(cluster, transfer.request)
        request = state.engine(sink.name).find(taken)
        if request is None:
            continue
        loaded = request.hit + request.external
        divisible = is_reverse(transfer.request) and all(g.kind == "full" for g in sink.groups)
        yield holds_if(loaded == transfer.tokens) or because(
            reason(
                "sends_tokens",
                "{source} sends the KV and states of {tokens} tokens of {sent}",
                source=source.name,
                tokens=transfer.tokens,
                sent=sent,
            ),
            reason(
                "counts_as_computed",
                "{engine} counts {loaded} tokens as computed after the load",
                loaded=loaded,
            ),
            excuses=(LOADS_A_PART,) if divisible and loaded < transfer.tokens else (),
            engine=sink.name,
            request=taken,
        )


@check(
    "P offers the KV of at least one token",
    origin="vllm#50297",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.OFFERS,),
)
def offer_has_tokens(state: State, cluster: Cluster) -> Iterator[Judged]:
    """P preempted a request while its last token was in flight. The token arrived and ended the
    request, and P offered a request that had lost its blocks (vllm#50297). D then loaded other
    blocks than those of its prompt, or died where it paired the lists."""
    for transfer in state.transfers:
        if transfer.phase != Phase.OFFERED:
            continue
        source, sent = giver(cluster, transfer.request)
        yield holds_if(transfer.tokens >= 1) or because(
            reason("offers_kv", "{engine} offers the KV of {request}"),
            reason(
                "has_computed",
                "{engine} has computed {tokens} of its tokens",
                tokens=transfer.tokens,
            ),
            engine=source.name,
            request=sent,
        )


@check(
    "after trimming, the local and the remote block list have equal length in every group",
    origin="vllm#42554",
    severity=Severity.CRASH,
    needs=(Need.PAIRED_BLOCKS,),
)
def paired_lists_are_equal(state: State, cluster: Cluster) -> Iterator[Judged]:
    """With prefix caching, P's list of a Mamba group has placeholders before the state, and D's
    list has one entry. The worker of D failed on the assertion `len(local) == len(remote)`
    (vllm#42554). The fix trimmed a list to its last n blocks, and with n = 0 this slice is the
    whole list (review of vllm#42554)."""
    for transfer in state.transfers:
        for group, (local, remote) in enumerate(transfer.pairs):
            yield holds_if(len(local) == len(remote)) or because(
                reason(
                    "fills_blocks",
                    "D fills {count} blocks {local} of {request} in group {group}",
                    count=len(local),
                    local=local,
                ),
                reason(
                    "sends_blocks",
                    "P sends {count} blocks {remote}",
                    count=len(remote),
                    remote=remote,
                ),
                engine=cluster.decode.name,
                request=transfer.request,
                group=group,
            )


def offset(table: Table, block: int, ratio: int, width: int) -> int | None:
    """Token offset of a kernel block in its request; None if the block is not in the table."""
    logical, part = divmod(block, ratio)
    return (table.index(logical) * ratio + part) * width if logical in table else None


@check(
    "each local block is paired with the remote block of equal token offset in every "
    "attention group",
    origin="vllm#50558",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.PAIRED_BLOCKS,),
)
def paired_offsets_are_equal(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """Equal list lengths are not enough. When vLLM trimmed the lists at the wrong end, the first
    blocks of P were paired with the last blocks of D (vllm#50558, vllm#48633). D then read correct
    KV at wrong token positions."""
    for name in step.changed_transfers:
        earlier, transfer = step.before.transfer(name), step.after.transfer(name)
        pairs = () if transfer is None else transfer.pairs
        if not pairs or (earlier is not None and earlier.pairs == pairs):
            continue  # judged when the blocks were paired, whatever becomes of the transfer
        source, sent = giver(cluster, name)
        sink, taken = taker(cluster, name)
        ours = step.after.engine(sink.name).find(taken)
        theirs = step.after.engine(source.name).find(sent)
        if ours is None or theirs is None:
            continue  # cannot be judged: an ended request has no table
        for group, (local, remote) in enumerate(pairs):
            if not sink.groups[group].attention:
                continue  # cannot be judged: a state is at no one token
            width = sink.kernel_tokens(group)
            for here, there in zip(local, remote, strict=False):
                to = offset(ours.tables[group], here, sink.physical_per_logical, width)
                origin = offset(theirs.tables[group], there, source.physical_per_logical, width)
                yield holds_if(to == origin) or because(
                    reason(
                        "holds_tokens_from",
                        "{here} holds the tokens of {request} from token {to} on in group {group}",
                        here=kernel_block(sink, here),
                        to=to,
                    ),
                    reason(
                        "is_read_from",
                        "it is read from {there}, whose tokens start at {origin}",
                        there=kernel_block(source, there),
                        origin=origin,
                    ),
                    engine=sink.name,
                    request=taken,
                    group=group,
                    block=here,
                )


def _freed(state: State, of: Side, statuses: tuple[str, ...], blocks: set[int]) -> list[int]:
    """The blocks of a transfer that its request, which must be in one of these statuses, does not
    hold any more."""
    held = state.engine(of.engine.name).find(of.request)
    if held is None or held.status not in statuses:
        return sorted(blocks)
    return sorted(blocks - {b for table in held.tables for b in table})


def _has_freed(of: Side, still_used: Reason) -> Judged:
    """A request has freed blocks that a transfer still uses."""
    freed = reason("has_freed", "the request has freed them")
    return because(still_used, freed, engine=of.engine.name, request=of.request)


@check(
    "no block is freed while a transfer reads or writes it",
    origin="vllm#32255",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.BLOCKS_IN_TRANSFER,),
)
def nothing_reused_under_transfer(state: State, cluster: Cluster) -> Iterator[Judged]:
    """A user aborted a request while D read its blocks from P. D freed the blocks during the read,
    and the read overwrote the next owner of these blocks (vllm#32255). P has the same duty: its
    blocks must stay until D has read them.

    While a transfer reads or writes, both requests keep its blocks. D also keeps the blocks that it
    has registered for a push, because P may write them at any time.
    """
    for transfer in state.transfers:
        if transfer.phase not in WRITTEN:
            continue
        sink, source = (side(cluster, transfer.request) for side in (taker, giver))
        written, read = blocks_filled(cluster, transfer), blocks_sent(cluster, transfer)
        freed = _freed(state, sink, (LOADING, ABORTED), written)
        yield holds(len(written) - len(freed))
        if freed:
            yield _has_freed(
                sink,
                reason(
                    "still_writes",
                    "a transfer still writes blocks {lost} of {request} on {engine}",
                    lost=freed,
                ),
            )
        freed = _freed(state, source, (SENDING,), read)
        yield holds(len(read) - len(freed))
        if freed:
            yield _has_freed(
                source,
                reason(
                    "still_reads",
                    "a transfer still reads blocks {lost} of {request} on {engine}",
                    lost=freed,
                ),
            )


@check(
    "P keeps blocks for D only while D may still load them",
    origin="kvproof, vLLM 0.32.0",
    severity=Severity.LEAK,
    needs=(Need.BOTH_ENGINES,),
)
def nothing_kept_for_nobody(state: State, cluster: Cluster) -> Iterator[Judged]:
    """P keeps the blocks of a prompt until D has loaded them. If D has the whole prompt in its own
    cache, or if the user aborts the request, D loads nothing and must report this to P. In vLLM
    0.32.0 some such requests are not reported, and each of them holds its blocks on P until the
    lease expires. A repeated prompt is such a request.

    So while P offers a transfer, D has neither started the request without loading nor ended it.
    """
    decode = state.engine(cluster.decode.name)
    if decode.dead:
        return  # cannot be judged: a dead D reports nothing, and `engine_survives` is about it
    for transfer in state.transfers:
        if transfer.phase != Phase.OFFERED:
            continue
        request = decode.find(transfer.request)
        served = request is not None and bool(request.tables)
        yield holds_if(
            not served and (decode.name, transfer.request) not in state.ended
        ) or because(
            reason("runs", "{engine} runs {request} and loads nothing")
            if served
            else reason("has_ended", "{engine} has ended {request} and loads nothing"),
            reason(
                "no_report_and_keeps",
                "D sent no report, and P keeps blocks {blocks} for it",
                blocks=transfer.remote,
            ),
            engine=decode.name,
            request=transfer.request,
        )


def _moved_on(sink: EngineConfig, offered: int, prompt: int) -> tuple[Excuse, ...]:
    """Why P may not use all tokens of a reverse transfer. If D has computed more tokens than this
    prompt has, full attention still has the KV of each token. A window or a Mamba state has moved
    on and cannot be used."""
    divisible = all(g.kind == "full" for g in sink.groups)
    return (MOVED_ON,) if offered >= prompt and not divisible else ()


@check(
    "D hits or loads every token that P offers",
    origin="kvproof, vLLM 0.32.0",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.OFFERED,),
)
def offered_tokens_are_loaded(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """P has computed a prompt for D and offers its blocks. In vLLM 0.32.0, D sometimes computes the
    prompt again and does not load it. All answers stay correct, and the only sign is a higher
    latency.

    In the reverse transfer, P hits or loads every token that its groups can use.
    """
    for admission in step.effects.admissions:
        if admission.route == "local":
            continue  # cannot be judged: nobody computes its prompt for it
        name = incoming(cluster, admission.engine, admission.request)
        transfer = step.before.transfer(name)
        if transfer is None or transfer.phase != Phase.OFFERED:
            continue
        (source, sent), sink = giver(cluster, name), taker(cluster, name).engine
        offered, excuses = transfer.tokens, tuple[Excuse, ...]()
        if is_reverse(name):
            offered = min(offered, len(admission.tokens))
            excuses = _moved_on(sink, transfer.tokens, len(admission.tokens))
        yield holds_if(admission.hit + admission.external >= offered) or because(
            reason(
                "offers",
                "{source} offers {offered} tokens of {sent}",
                source=source.name,
                offered=offered,
                sent=sent,
            ),
            reason(
                "hits_and_loads",
                "{engine} hits {hit} tokens, loads {external} and recomputes the rest",
                hit=admission.hit,
                external=admission.external,
            ),
            excuses=excuses,
            engine=sink.name,
            request=admission.request,
        )


@check(
    "a prompt is truncated at most once, also if its request is preempted",
    origin="vllm#37310",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.PROMPTS,),
)
def truncated_at_most_once(engine: Engine) -> Iterator[Judged]:
    """P truncates a prompt by one token, because D computes the last token. After a preemption P
    schedules the request again. Without a guard, P truncates one more token each time, and D
    receives the KV of too few tokens (vllm#37310, review)."""
    for request in engine.requests:
        sent = request.submitted_prompt_tokens
        lost = sent - len(request.prompt)
        yield holds_if(lost in (0, 1)) or because(
            reason(
                "was_submitted",
                "{request} was submitted to {engine} with {sent} prompt tokens"
                + (" and preempted" if request.preemptions else ""),
                sent=sent,
                preemptions=request.preemptions,
            ),
            reason("prompt_has", "its prompt has {tokens} tokens", tokens=len(request.prompt)),
            engine=engine.name,
            request=request.id,
        )


def _emits(engine: Engine, name: str, output: str) -> Iterator[Reason]:
    """The ways in which the request still gets a token that depends on the failed load."""
    request = engine.find(name)
    if request is None:
        return
    if request.output != output:
        yield reason("has_the_token", "it has one token more")
    if any(f.samples and f.fate == COUNTS for f in engine.flights(name)):
        yield reason("later_token_kept", "the token of a later dispatched step will be kept")


@check(
    "no token is kept that was computed from a failed load",
    origin="vllm#45138",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.FAILED_LOADS,),
)
def no_token_of_a_failed_load(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A store failed to load the KV of a request. The next step of the request was already
    dispatched, and its token was kept, although it was computed from KV that was never loaded
    (vllm#45138). The user receives a wrong token and no error.

    After a failed load, neither the token of its step nor the token of a later dispatched step is
    kept. With the policy `fail` the request ends; with `recompute` it goes on.
    """
    event = step.event
    if not isinstance(event, Complete) or not event.failed:
        return
    failed = reason("load_failed", "the load of {request} on {engine} failed")
    before, after = (s.engine(event.engine) for s in (step.before, step.after))
    emits = tuple(_emits(after, event.failed, before.request(event.failed).output))
    if not emits:
        yield holds()
    for how in emits:
        yield because(failed, how, engine=event.engine, request=event.failed)
    goes_on = after.find(event.failed) is not None
    yield holds_if(goes_on == (cluster.load_failure == "recompute")) or because(
        reason(
            "load_failure_policy",
            "{failed}, and the load-failure policy is {load_failure}",
            failed=failed,
            load_failure=cluster.load_failure,
        ),
        reason("goes_on", "the request goes on")
        if goes_on
        else reason("has_ended", "the request has ended"),
        engine=event.engine,
        request=event.failed,
    )
