"""What vLLM caches under a key that the content does not have, and what its KV events report."""

from kvproof.live.known.facts import GROUPS, after, choices, failed_load, holders, request, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.events import Compute, Preempt
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
    known, size = request(step, about), cfg.groups[about.group].block_size
    return any(
        _left_behind(after(step, about), each, about.group, size)
        for each in (holders(step, about) if known is None else [known])
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
