"""The layout of KV caches that a start-up makes: groups, tables and pages keep what their layers
read."""

from collections.abc import Iterator
from itertools import combinations

from kvproof.invariants.check import check
from kvproof.model.because import Judged, Reason, because, holds, holds_if, reason
from kvproof.model.facts.startup import Pages, StartedGroup, StartedWorker, Startup
from kvproof.model.plans.engine import IN_ONE_BLOCK, WINDOWS, Layer
from kvproof.model.severity import Severity


@check(
    "each layer is in one cache group, which keeps all that the layer reads",
    origin="get_kv_cache_groups; vllm#48256",
    severity=Severity.WRONG_TOKENS,
)
def layer_keeps_what_it_reads(start: Startup) -> Iterator[Judged]:
    """A layer reads the blocks of its group's table. So each layer is in one group, which keeps
    what the layer reads: a window of at least its own, all tokens for full attention, states for
    Mamba, a ring for a ring."""
    for index, worker in enumerate(start.workers):
        for name, layer in worker.layers.items():
            homes = [group for group in worker.groups if name in group.layers]
            has = reason(
                "layer",
                "worker {worker} has {name}: {layer}",
                worker=index,
                name=name,
                layer=layer.words,
            )
            if len(homes) != 1:
                yield because(has, reason("groups", "{count} groups have it", count=len(homes)))
            elif not _suits(homes[0], layer):
                keeps = f"{homes[0].kind}, {homes[0].window or 'all'} tokens"
                yield because(has, reason("keeps", "its group keeps: {keeps}", keeps=keeps))
            else:
                yield holds()


def _suits(group: StartedGroup, layer: Layer) -> bool:
    if {group.kind, layer.kind} & {*IN_ONE_BLOCK}:
        return group.kind == layer.kind
    if not group.window:  # all tokens are kept
        return group.kind != "other"
    if layer.kind in WINDOWS:
        return group.kind in WINDOWS and group.window >= layer.window
    return group.kind == layer.kind and group.window == layer.window


@check(
    "the block table of a group is as wide as each of its layers expects",
    origin="KVCacheSpec.max_num_blocks_per_req; vllm#50823",
    severity=Severity.CRASH,
)
def table_fits_its_layers(start: Startup) -> Iterator[Judged]:
    """A worker makes one block table for a group, and each layer of the group makes its metadata
    for a table of the size that its own spec says. If these differ, rows are read with the wrong
    stride, or copied into a buffer of another shape (vllm#50823). It has at least the blocks of a
    request."""
    for index, worker in enumerate(start.workers):
        for number, group in enumerate(worker.groups):
            if group.entries is None or not group.layers:
                continue
            made = reason(
                "makes",
                "worker {worker} makes a table of {entries} blocks for a request of group {group}",
                worker=index,
                entries=group.entries,
                group=number,
            )
            expected = ", ".join(sorted(map(str, group.of_layers)))
            yield holds_if({*group.of_layers} == {group.entries}) or because(
                made, reason("expect", "its layers expect {expected}", expected=expected)
            )
            needed = -(-start.max_model_len // (group.block * start.plan.shards))
            if group.kind not in IN_ONE_BLOCK and group.entries < needed:
                yield because(
                    made, reason("needs", "the longest request has {blocks}", blocks=needed)
                )


@check(
    "a page of a layer has room for a block of its tokens, or for its state",
    origin="KVCacheSpec.page_size_bytes; vllm#32283",
    severity=Severity.WRONG_TOKENS,
)
def page_holds_its_block(start: Startup) -> Iterator[Judged]:
    """A page has room for the tokens of a block of its group, or for a state. If it is smaller, the
    end of a block is written into the next one."""
    for index, worker in enumerate(start.workers):
        blocks = {name: group.block for group in worker.groups for name in group.layers}
        for name, layer in worker.layers.items():
            tokens = 1 if layer.kind == "mamba" else blocks.get(name, layer.block)
            needs = reason(
                "needs",
                "a block of {name} of worker {worker} has {tokens} tokens of {bytes} bytes",
                name=name,
                worker=index,
                tokens=tokens,
                bytes=layer.content_bytes,
            )
            found = [pages for pages in worker.pages if pages.layer == name]
            if len(found) != 1:
                yield because(needs, reason("places", "it has {count} places", count=len(found)))
            elif min(found[0].size, found[0].stride) < tokens * layer.content_bytes:
                yield because(
                    needs,
                    reason(
                        "page",
                        "its pages have {size} bytes, one each {stride} bytes",
                        size=found[0].size,
                        stride=found[0].stride,
                    ),
                )
            else:
                yield holds()


@check(
    "a worker makes pages for its own layers alone",
    origin="_project_kv_cache_groups_to_worker; allocate_kv_cache",
    severity=Severity.CRASH,
)
def pages_are_of_own_layers(start: Startup) -> Iterator[Judged]:
    """A worker makes pages for each layer of its config. It has the layers of its pipeline stage
    alone: for another layer it finds no group, and dies (`allocate_kv_cache`)."""
    for index, worker in enumerate(start.workers):
        for pages in worker.pages:
            yield holds_if(pages.layer in worker.layers) or because(
                reason("has", "worker {worker} has no {layer}", worker=index, layer=pages.layer),
                reason("makes", "its config has pages for it"),
            )


@check(
    "two layers share bytes only as pages of the same block in different groups",
    origin="KVCacheTensor",
    severity=Severity.WRONG_TOKENS,
)
def pages_lie_apart(start: Startup) -> Iterator[Judged]:
    """A block belongs to one group at a time. So the pages of two groups may share bytes only where
    both are pages of the same block, and the pages of one group may share none. All lie in their
    buffer."""
    for index, worker in enumerate(start.workers):
        mine = [pages for pages in worker.pages if pages.layer in worker.layers]
        for pages in mine:
            last = pages.start + (worker.num_blocks - 1) * pages.stride + pages.size
            yield holds_if(last <= worker.buffers[pages.buffer]) or because(
                _place(index, pages),
                reason(
                    "ends",
                    "the last ends at {last} of {bytes} bytes",
                    last=last,
                    bytes=worker.buffers[pages.buffer],
                ),
            )
        home = {name: at for at, group in enumerate(worker.groups) for name in group.layers}
        for one, other in combinations(mine, 2):
            alone = home.get(one.layer) == home.get(other.layer)
            if one.buffer == other.buffer and (met := _meet(worker, one, other, alone)):
                yield because(
                    _place(index, one),
                    _place(index, other),
                    reason(
                        "meet",
                        "block {one} of the first shares bytes with block {other} of the second",
                        one=met[0],
                        other=met[1],
                    ),
                )


def _meet(worker: StartedWorker, one: Pages, other: Pages, alone: bool) -> tuple[int, int] | None:
    """The blocks of two layers whose pages share bytes although they must not."""
    for block in range(worker.num_blocks):
        begin = one.start + block * one.stride
        first = max((begin - other.start - other.size) // other.stride + 1, 0)
        for theirs in range(first, worker.num_blocks):
            if other.start + theirs * other.stride >= begin + one.size:
                break
            if alone or theirs != block:
                return block, theirs
    return None


def _place(worker: int, pages: Pages) -> Reason:
    return reason(
        "place",
        "worker {worker}: the pages of {layer} begin at byte {start}, {stride} apart, {size} long",
        worker=worker,
        layer=pages.layer,
        start=pages.start,
        stride=pages.stride,
        size=pages.size,
    )


READ_WHOLE = ("full", "sink", "window", "chunked", "mla", "window mla", "rswa")
"""The kinds of layers whose blocks are read by an attention kernel."""


@check(
    "a block that held states or numbers of another precision is erased before it is read",
    origin="KVCacheConfig.needs_kv_cache_zeroing; vllm#47574, vllm#43961",
    severity=Severity.WRONG_TOKENS,
)
def new_blocks_have_no_old_values(start: Startup) -> Iterator[Judged]:
    """An attention kernel reads whole blocks, also the slots that are not written yet. Where the
    bytes of a block were a state before, or numbers of another precision, they may be no numbers at
    all when they are read as this layer's (vllm#35219, vllm#47574). So the workers erase such a
    block before its first step."""
    taken = start.run.taken if start.run else ()
    unerased = {each.group: each.block for each in taken if not each.erased}
    erased = sum(each.erased for each in taken)
    for index, worker in enumerate(start.workers):
        yield holds(erased)
        for group, block in unerased.items():
            met = _meets(worker, group)
            if met is None:
                yield holds()
                continue
            one, other = met
            yield because(
                reason(
                    "shared",
                    "worker {worker}: a block of {one} ({kind}) has the bytes of one of "
                    "{other} ({of})",
                    worker=index,
                    one=one,
                    kind=worker.layers[one].words,
                    other=other,
                    of=worker.layers[other].words,
                    feature=_feature(worker, group, one, other),
                ),
                reason(
                    "not_erased",
                    "a request takes block {block} for group {group}, and the workers do not "
                    "erase it",
                    block=block,
                    group=group,
                ),
            )


def _meets(worker: StartedWorker, group: int) -> tuple[str, str] | None:
    """Find a layer of this group and a layer of another group that keep values of different kinds
    in the same bytes."""
    own = worker.groups[group].layers
    pages = [each for each in worker.pages if each.layer in worker.layers]
    for one in (each for each in pages if each.layer in own):
        for other in (each for each in pages if each.layer not in own):
            layers = worker.layers[one.layer], worker.layers[other.layer]
            if _share(one, other) and _differ(*layers):
                return one.layer, other.layer
    return None


def _feature(worker: StartedWorker, group: int, one: str, other: str) -> str:
    """The difference between two such layers, as a part of a signature: a vLLM that does not erase
    one kind of blocks may erase another."""
    held = "states" if worker.layers[other].kind == "mamba" else "another precision"
    own = {worker.layers[name].bytes for name in worker.groups[group].layers}
    several = ", in a group of several precisions" if len(own) > 1 else ""
    return f"{worker.layers[one].kind} after {held}{several}"


def _share(one: Pages, other: Pages) -> bool:
    """Whether the pages of two layers for one block share bytes."""
    apart = one.start + one.size <= other.start or other.start + other.size <= one.start
    return one.buffer == other.buffer and not apart


def _differ(one: Layer, other: Layer) -> bool:
    """Whether one layer may read bytes that the other wrote as numbers of another type."""
    return one.kind in READ_WHOLE and (other.kind == "mamba" or one.bytes != other.bytes)


REPORTED_FOR_ALL = frozenset({"full_attention", "mla_attention"})
REPORTED = {
    "mamba": frozenset({"mamba"}),
    "window": frozenset({"sliding_window"}),
    "window mla": frozenset({"sliding_window_mla"}),
    "chunked": frozenset({"chunked_local_attention"}),
}
"""The kinds as which a group may be reported, by what its table keeps. For a group that keeps all
tokens, see `REPORTED_FOR_ALL`."""


@check(
    "a cache group is reported as the kind that it keeps",
    origin="get_kv_cache_spec_kind; vllm#51218",
    severity=Severity.LOST_PERFORMANCE,
)
def reported_kind_is_kept(start: Startup) -> Iterator[Judged]:
    """Readers of KV events, and routers that ask an engine for its cache groups, decide by the
    reported kind which blocks of a prompt a group keeps. If the kind is "unknown", although vLLM
    has made one group of layers that keep the same tokens (vllm#51218), a router sends the prompt
    to another engine, and KV is computed again."""
    for where, groups in _places(start):
        for number, group in enumerate(groups):
            may = REPORTED.get(group.kind, REPORTED_FOR_ALL)
            if group.kind == "ring" or not (group.reported and group.layers):
                continue  # no event and no hit tells of a ring
            yield holds_if(group.reported in may) or because(
                reason(
                    "keeps",
                    "group {group} of {where} keeps: {kind}, {tokens} tokens",
                    group=number,
                    where=where,
                    kind=group.kind,
                    tokens=group.window or "all",
                ),
                reason("reported", "vLLM reports it as {reported}", reported=group.reported),
            )


def _places(start: Startup) -> Iterator[tuple[str, tuple[StartedGroup, ...]]]:
    yield "the scheduler", start.groups
    for index, worker in enumerate(start.workers):
        yield f"worker {index}", worker.groups
