"""What vLLM caches under a key that the content does not have, and what its KV events report; what
a hit gives up that it could have; and numbers of blocks that vLLM predicts, or reserves, wrongly.
"""

from math import ceil

from kvproof.invariants.changes import choices
from kvproof.invariants.hits import longest_cached, may_end_at, missing
from kvproof.live.known.facts import (
    GROUPS,
    admission,
    after,
    allocation,
    concerned,
    covered,
    failed_load,
    holders,
    offer,
    on_decode,
    on_prefill,
    request,
    seen,
)
from kvproof.live.known.ingredients import needs
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.events import Admit, Compute, Preempt
from kvproof.model.known_finding import known_finding
from kvproof.model.kv_events import Removed, Stored
from kvproof.model.state import NULL, Engine, Request
from kvproof.model.step import Step


@known_finding(
    says="a hit copies a block before the same step fills it",
    signatures=(
        seen("cached_block_holds_its_key", "Schedule", on=GROUPS)
        | seen("request_reads_its_own_prefix", "Schedule", on=("full", "window"))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
    ),
)
def copied_before_filled(_cluster: Cluster, step: Step, about: About) -> bool:
    """vLLM makes the copies of a step before the step computes. A block that this step fills is
    copied with its old content.

    Cause: The block is the target of a copy in this step.
    """
    return any(c.engine == about.engine and c.target == about.block for c in step.effects.copies)


@known_finding(
    says="the end of a prompt is cached inside a wider block, where no hit can end",
    signatures=seen("cached_key_can_be_hit", "Schedule", "Complete", on=("full", "mamba")),
)
def end_of_prompt_cached_in_wider_block(cluster: Cluster, step: Step, about: About) -> bool:  # noqa: ARG001
    """Full attention and Mamba cache the last prefix of a prompt that has a hash, also if no hit
    can end there.

    Cause: Hits inside a block are not possible, and the prefix ends inside a block of its group.
    """
    cfg = cluster.engine(about.engine)
    size = cfg.groups[about.group or 0].block_size
    return not cfg.partial_block_hits and len(about.prefix) % size != 0


@known_finding(
    says="blocks that a failed load did not fill stay in the cache",
    signatures=(
        seen("cached_block_holds_its_key", "Complete", on=("full",))
        | seen("counter_counts_only_cached", "Complete", on=("full",))
        # The drafter writes behind the tokens that are computed again, into the same block.
        | seen("cached_block_holds_its_key", "Schedule", on=("full",))
        | seen("writer_is_alone", "Schedule")
    ),
)
def failed_load_stays_cached(cluster: Cluster, step: Step, about: About) -> bool:
    """vLLM caches blocks in the step that loads them. If the load fails, they stay in the cache
    under the policy `recompute`.

    Cause: The load of a request failed in this event, and the finding is about this request or its
    blocks. Or a request computes the blocks again, and still counts them as cached.
    """
    failed = failed_load(step)
    if failed:
        return about.request == failed or any(r.id == failed for r in holders(step, about))
    engine = step.before.engine(about.engine)
    held = [r for r in engine.requests if any(about.block in table for table in r.tables)]
    return any(_counts_uncomputed(cluster, request, about) for request in held)


def _counts_uncomputed(cluster: Cluster, request: Request, about: About) -> bool:
    """Whether a request counts blocks of full attention as cached that it has not computed."""
    counted = zip(cluster.engine(about.engine).groups, request.num_cached_blocks, strict=False)
    return any(
        group.kind == "full" and count * group.block_size > request.computed
        for group, count in counted
    )


@known_finding(
    says="null blocks before the loaded tokens are counted as cached",
    signatures=seen(
        "counter_counts_only_cached",
        "Schedule",
        "LeaseExpire",
        "TransferFail",
        on=("window", "mamba"),
    ),
)
def null_blocks_counted_as_cached(_cluster: Cluster, step: Step, about: About) -> bool:
    """After a load, `num_cached_block` starts at the length of the table, null blocks included.

    Cause: A load has left null blocks at the start of the table, and the counter is not above their
    number.
    """
    known = request(step, about)
    if known is None or about.group is None or not known.external or not known.tables:
        return False
    table = known.tables[about.group]
    nulls = next((n for n, block in enumerate(table) if block != NULL), len(table))
    return 0 < known.num_cached_blocks[about.group] <= nulls


@known_finding(
    says="a KV event reports a prefix as removed while another block is cached under it",
    signatures=(
        seen("events_replay_to_the_cache", "Schedule", "Complete", "Evict", on=GROUPS)
        | seen("events_carry_their_tokens", "Schedule", "Complete", on=GROUPS)
    ),
)
def removal_of_one_copy_reported(_cluster: Cluster, step: Step, about: About) -> bool:
    """vLLM reports a key as removed when one of its blocks is evicted, although another block still
    serves hits.

    Cause: A key was reported as removed, or had more blocks before, and one block is still cached
    under it. In the same step, blocks after this key may be reported as stored.
    """
    before, after = step.before.engine(about.engine), step.after.engine(about.engine)
    removed = {(r.group, r.prefix) for r in step.effects.reports if isinstance(r, Removed)}
    stored = {(r.group, r.parent) for r in step.effects.reports if isinstance(r, Stored)}
    if not about.prefix:
        return any(after.blocks_for(key) or before.blocks_for(key) for key in removed & stored)
    key = about.group or 0, about.prefix
    copies = len(after.blocks_for(key))
    return copies > 0 and (key in removed or len(before.blocks_for(key)) > copies)


@known_finding(
    says="a KV event carries the tokens of blocks that it does not name",
    signatures=seen("events_carry_their_tokens", "Schedule", "Complete", on=("window", "mamba")),
)
def report_spans_skipped_blocks(cluster: Cluster, step: Step, about: About) -> bool:
    """A KV event carries the tokens of all blocks between the first and the last, and the hashes of
    the cached blocks only.

    Cause: A group that does not cache every block reports more tokens than its named blocks have,
    or blocks after a block that is not cached.
    """
    index = about.group or 0
    size = cluster.engine(about.engine).groups[index].block_size
    cached = {*step.before.engine(about.engine).cached, *step.after.engine(about.engine).cached}
    keys = {key for key, _ in cached}
    return any(
        report.group == index
        and (
            len(report.tokens) > len(report.prefixes) * size
            or (report.parent and (index, report.parent) not in keys)
        )
        for report in step.effects.reports
        if isinstance(report, Stored)
    )


@known_finding(
    in_vllm="KVCacheManager.get_computed_blocks",
    says="the KV event of a hit names blocks that the hit does not have, or the engine dies of it",
    signatures=(
        seen("events_replay_to_the_cache", "Schedule", on=("window", "mamba"))
        | seen("engine_survives", "Schedule")
    ),
)
def hit_report_names_null_blocks(cluster: Cluster, step: Step, about: About) -> bool:
    """The event of a hit (`kv_cache_report_mode` is "full") names each group's blocks from the
    first to the last of the hit as if all were cached and full. Windows and Mamba groups have null
    blocks there, and a hit may end inside its last block. Where the prompt does not fill this
    block, it has no hash, and the engine dies. The event is made whenever the request is looked up,
    also where it is not admitted then.

    Cause: A request asks for such events, and an event of this step names the blocks of a group
    from the first one of its tokens on. Or the engine dies where it looks up the hash of a block
    while such a request waits.
    """
    after = step.after.engine(about.engine)
    asking = [each for each in after.requests if cluster.job(each.id).reports_hits]
    if after.dead is not None:
        waits = any(not each.computed for each in asking)
        return waits and after.dead.function == "_get_value_at"
    return any(
        report.group == about.group and not report.parent and about.prefix in report.prefixes
        for report in step.effects.reports
        if isinstance(report, Stored)
        and any(each.tokens.startswith(report.prefixes[-1:]) for each in asking)
    )


@known_finding(
    in_vllm="MambaManager.allocate_new_blocks",
    says="a part of a session runs past a block that has an earlier state, and it is cached",
    signatures=(
        seen("cached_block_holds_its_key", "Schedule", "Complete", on=("mamba",))
        | seen("no_more_is_held_than_is_read", "Schedule", on=("mamba",))
    ),
)
def session_caches_older_state(cluster: Cluster, step: Step, about: About) -> bool:
    """The last step of an answer ends past a boundary of a Mamba group, with drafts that are
    rejected or dropped. Its state is then in the block after that of the computed tokens. The next
    part of the session runs past the end of that block, which stays in the table, and is cached as
    if the state at its end were there.

    Cause: A session on an engine with drafts has such a block.
    """
    cfg = cluster.engine(about.engine)
    if not cluster.sessions or not cfg.drafts or about.group is None:
        return False
    size = cfg.groups[about.group].block_size
    return any(
        _left_behind(after(step, about), each, about.group, size)
        for each in concerned(step, about)
        if cluster.job(each.id).parts and each.tables
    )


def _left_behind(engine: Engine, session: Request, group: int, size: int) -> bool:
    """Whether a block of a session's table has a state of its prompt before the end of the block,
    and the session has computed more."""
    for block, end in zip(
        session.tables[group], range(size, session.computed + 1, size), strict=False
    ):
        held = engine.memory[block] if block != NULL else None
        state = held.slots[0] if held and held.group == group else ""
        if state and len(state) < end and session.tokens.startswith(state):
            return True
    return False


@known_finding(
    says=(
        "chunks are split by the smallest block size, and a wrong state is cached for a wider block"
    ),
    signatures=(
        seen("cached_block_holds_its_key", "Schedule", "Complete", on=("mamba",))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
        | seen("repeated_prompt_hits", "Schedule")
    ),
    needs=needs("unequal_block_sizes"),
)
def split_at_the_smallest_block(cluster: Cluster, step: Step, about: About) -> bool:  # noqa: ARG001
    """The align split uses the smallest block size of all groups. A state is then cached under the
    prefix of a wider block, which has another state. Where no hit ends inside a block, no state may
    be cached at a boundary of that block, and a repeated prompt does not hit.

    Cause: Another group has a smaller block size than the Mamba group. A missed hit (about no
    group) is explained only where no hit ends inside a block.
    """
    cfg = cluster.engine(about.engine)
    smallest = min(g.block_size for g in cfg.groups)
    if about.group is not None:
        return smallest < cfg.groups[about.group].block_size
    state = cfg.aligned_group
    return state is not None and not cfg.partial_block_hits and smallest < state.block_size


@known_finding(
    says=(
        "a block stays in the cache although the request that was to compute it is preempted "
        "in this step"
    ),
    signatures=(
        seen("cached_block_holds_its_key", "Schedule", on=GROUPS)
        | seen("request_reads_its_own_prefix", "Schedule", on=GROUPS)
        | seen("state_read_is_state_at_computed", "Schedule", on=GROUPS)
    ),
)
def uncomputed_stays_cached(_cluster: Cluster, step: Step, about: About) -> bool:
    """With priority scheduling, a request may be preempted in the step that scheduled it. Its
    blocks were cached when it was scheduled, and stay cached.

    Cause: A request that was scheduled and preempted in this step freed the block, or the block is
    a copy of such a block.
    """
    scheduled, blocks = set[str](), set[int | None]()
    for choice in choices(step):
        if isinstance(choice, Compute):
            scheduled.add(choice.request)
        if isinstance(choice, Preempt) and choice.request in scheduled:
            blocks |= {block for freed in choice.freed for block in freed}
    blocks |= {c.target for c in step.effects.copies if c.source in blocks}
    return about.block in blocks


@known_finding(
    says="the prediction of a Mamba group is negative after rejected drafts",
    signatures=seen("predicted_is_taken", "Schedule"),
)
def fewer_than_none_predicted(cluster: Cluster, step: Step, about: About) -> bool:
    """After rejected drafts a request holds more state blocks than it needs, and vLLM adds the
    negative difference to the prediction.

    Cause: The engine has drafts and Mamba groups, and the prediction is lower than the allocation.
    """
    cfg, taken = cluster.engine(about.engine), allocation(step, about)
    states = sum(group.aligned for group in cfg.groups)
    beside = cfg.drafts > 0 and states > 0
    return beside and taken is not None and 0 < taken.taken - taken.predicted <= states


@known_finding(
    says=(
        "the prediction does not include the block for a state that a store loads; at an "
        "exact fit the engine dies"
    ),
    signatures=seen("predicted_is_taken", "Schedule") | seen("engine_survives", "Schedule"),
)
def loaded_state_not_predicted(cluster: Cluster, step: Step, about: About) -> bool:
    """A store loads a Mamba state within the step, and the prediction does not include its block.

    Cause: A store loads tokens and states in this step. The prediction is one block too low, or the
    engine dies when it allocates this block.
    """
    cfg = cluster.engine(about.engine)
    if not cfg.store or not cfg.has_state:
        return False
    taken = allocation(step, about)
    if taken is not None:
        admitted = admission(step, about)
        states = sum(group.aligned for group in cfg.groups)
        brings = admitted is not None and admitted.external > 0
        return brings and 0 < taken.taken - taken.predicted <= states
    brings = any(isinstance(c, Admit) and c.external > 0 for c in choices(step))
    dead = after(step, about).dead
    return brings and dead is not None and dead.function == "get_new_blocks"


@known_finding(
    says="the prediction is one block too high if a load replaces a cached state",
    signatures=seen("predicted_is_taken", "Schedule"),
)
def superseded_state_reserved(cluster: Cluster, step: Step, about: About) -> bool:
    """The prediction includes a cached state before the state that will be loaded.

    Cause: A load has a cached state before its end, and the prediction is one block too high.
    """
    cfg = cluster.engine(about.engine)
    admitted, taken = admission(step, about), allocation(step, about)
    if admitted is None or taken is None or not admitted.external or not cfg.has_connector:
        return False
    end = admitted.hit + admitted.external
    states = [i for i, group in enumerate(cfg.groups) if group.aligned]
    cached = [
        key
        for key, blocks in admitted.cached
        if key[0] in states and blocks and len(key[1]) < end and admitted.tokens.startswith(key[1])
    ]
    return bool(cached) and 0 < taken.predicted - taken.taken <= len(states)


@known_finding(
    says=(
        "if a cached state covers more tokens than the attention cache, D gives up its local hit"
    ),
    signatures=seen("repeated_prompt_hits", "Schedule") | seen("hit_is_the_longest", "Schedule"),
)
def deeper_state_gives_up_hit(cluster: Cluster, step: Step, about: About) -> bool:
    """If the hit of one group alone is longer than the hit of full attention, D uses only the
    common hit of all groups, although P would send the states.

    Cause: Another group has cached a prefix of the prompt that full attention has not cached.
    """
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or not admitted.external or not cfg.connected:
        return False
    others = [i for i, group in enumerate(cfg.groups) if group.kind != "full"]
    return any(
        key[0] in others
        and blocks
        and admitted.tokens.startswith(key[1])
        and not covered(cluster, admitted, len(key[1]))
        for key, blocks in admitted.cached
    )


@known_finding(
    says=(
        "with one cache group and an EAGLE drafter, a prompt of full blocks hits one block "
        "less than it could"
    ),
    signatures=seen("hit_is_the_longest", "Schedule") | seen("repeated_prompt_hits", "Schedule"),
)
def eagle_drop_before_the_last_token(cluster: Cluster, step: Step, about: About) -> bool:
    """With one group and an EAGLE drafter, the matched block that is dropped must end before the
    last token. With several groups it need not.

    Cause: One group with a drafter's layers, and a prompt that ends at a block boundary.
    """
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or len(cfg.groups) != 1 or not cfg.drops_match(cfg.groups[0]):
        return False
    return len(admitted.tokens) % cfg.groups[0].block_size == 0


@known_finding(
    says="if D's attention cache covers the offer and D has no state, D loads nothing",
    signatures=seen("offered_tokens_are_loaded", "Schedule"),
)
def full_hit_gives_up_load(cluster: Cluster, step: Step, about: About) -> bool:
    """D's attention cache covers all tokens that P offers, and D has no Mamba state. vLLM asks the
    connector for tokens after this hit, and there are none. When it reduces the hit, it does not
    ask the connector again.

    Cause: Nothing is loaded, and full attention has cached all blocks of the offer.
    """
    admitted, offered = admission(step, about), offer(cluster, step, about)
    if admitted is None or offered is None or admitted.external:
        return False
    connected = on_decode(cluster, about) or on_prefill(cluster, about)
    return connected and covered(cluster, admitted, offered.tokens)


@known_finding(
    in_vllm="KVCacheManager.truncate_computed_blocks",
    says="an engine dies where it gives up a begun block for a load, and a window lacks a block",
    signatures=seen("engine_survives", "Schedule"),
)
def begun_block_given_up_by_window(cluster: Cluster, step: Step, about: About) -> bool:
    """A load of more tokens than a hit has inside its last block gives these up. vLLM then asserts
    that every window group also has the blocks before, although only full attention hits them.

    Cause: An engine of a pair, with a window group and hits inside a block, dies where it gives up
    the tokens inside the last block of a hit.
    """
    cfg, dead = cluster.engine(about.engine), after(step, about).dead
    windows = any(group.kind == "window" for group in cfg.groups)
    died = dead is not None and dead.function == "truncate_computed_blocks"
    return cfg.connected and cfg.partial_block_hits and windows and died


@known_finding(
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    says="a group with drafter layers does not match the block after a hit that another shortens",
    signatures=seen("hit_holds_in_every_group", "Schedule", on=("window",)),
)
def shrunk_hit_is_not_matched_again(cluster: Cluster, step: Step, about: About) -> bool:
    """Each group with drafter layers must match the block after a hit, which is then dropped. A
    group that shortens the hit while it drops its own block does not make the others match again:
    at the new end of the hit they have the blocks of the hit, and maybe not the one after it.

    Cause: Beside two other groups, a window lacks only the block after the hit, and has all that a
    longer hit needs.
    """
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or about.group is None or len(cfg.groups) < 3:
        return False
    keys = {key for key, blocks in admitted.cached if blocks}
    tokens = admitted.tokens + admitted.dropped

    def lacks(hit: int) -> list[str]:
        return [prefix for index, prefix in missing(cfg, keys, tokens, hit) if index == about.group]

    here = lacks(admitted.hit)
    longer = (h for h in range(admitted.hit + 1, len(tokens)) if may_end_at(cfg, h))
    only_after = bool(here) and all(len(prefix) > admitted.hit for prefix in here)
    drops = cfg.drops_match(cfg.groups[about.group])
    return drops and only_after and any(not lacks(hit) for hit in longer)


@known_finding(
    in_vllm="SlidingWindowManager.find_longest_cache_hit",
    says=(
        "with a drafter in a window group of narrow blocks, a prefix shorter than the window "
        "hits one unit less than it could"
    ),
    signatures=seen("hit_is_the_longest", "Schedule") | seen("repeated_prompt_hits", "Schedule"),
)
def window_prefix_aligned_before_drop(cluster: Cluster, step: Step, about: About) -> bool:
    """A prefix shorter than a window is cut to whole units of a hit before the drafter's block is
    dropped, and again after it. It loses one unit more than the block.

    Cause: A window group with a drafter's layers has blocks narrower than a hit's unit. The longest
    hit and the dropped block together have fewer blocks than a whole window and the dropped block.
    """
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None:
        return False
    best = longest_cached(cluster, admitted)
    return admitted.hit < best and any(
        best // g.block_size < ceil((g.window - 1) / g.block_size)
        for g in cfg.groups
        if g.kind == "window" and cfg.drops_match(g) and g.block_size < cfg.hit_unit
    )
