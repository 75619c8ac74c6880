"""Events of stores: what a router learns from a connector."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.model.because import Judged, because, choice, holds, holds_if, reason, release
from kvproof.model.facts.connectors import Announced, EventTokens, Past
from kvproof.model.severity import Severity


@check(
    "an event of stored blocks carries the tokens of one block of its group for each hash",
    origin="take_events, BlockStored; vllm#51614",
    severity=Severity.LOST_PERFORMANCE,
)
def events_carry_whole_blocks(fact: Announced) -> Iterator[Judged]:
    """A router learns from events what a store has. It cuts the tokens of an event into blocks, one
    for each hash. An event whose tokens are not those blocks gives the router wrong keys, and it
    sends requests elsewhere (vllm#51614). An event with one hash may be about a prefix that ends
    inside a block: then it has the tokens after the last prefix with a hash."""
    if not fact.tokens:
        return  # cannot be judged: `events_name_their_tokens` is about an event without tokens
    carries = reason(
        "carries",
        "an event of stored blocks has {hashes} hashes and {tokens} tokens",
        hashes=fact.hashes,
        tokens=fact.tokens,
    )
    if fact.tokens != fact.hashes * fact.block_tokens:
        yield because(
            carries, reason("in_blocks", "in blocks of {size} tokens", size=fact.block_tokens)
        )
    elif fact.hashes > 1 and fact.group_tokens not in (None, fact.block_tokens):
        yield because(
            carries,
            reason(
                "group_blocks",
                "it says blocks of {size} tokens, and those of its group have {whole}",
                size=fact.block_tokens,
                whole=fact.group_tokens,
            ),
        )
    else:
        yield holds()


@check(
    "an event of stored blocks has for each hash the tokens of the block with this hash",
    origin="take_events, BlockStored.token_ids; vllm#42959",
    severity=Severity.LOST_PERFORMANCE,
)
def events_have_tokens_of_their_hash(fact: EventTokens) -> Iterator[Judged]:
    """A router learns from events which prefixes a store has: it makes its own keys of the tokens.
    An event that has the tokens of another block sends requests to where their prefix is not."""
    yield holds_if(fact.prefix.endswith(fact.carried)) or because(
        reason(
            "carries_tokens",
            "an event of stored blocks has the tokens {carried} for a hash",
            carried=fact.carried,
        ),
        reason("hash_of", "the prefix with this hash is {prefix}", prefix=fact.prefix),
    )


@check(
    "where there are several cache groups, an event of stored blocks names its group",
    origin="take_events, BlockStored.group_idx; vllm#44103",
    severity=Severity.LOST_PERFORMANCE,
)
def events_name_their_group(fact: Announced) -> Iterator[Judged]:
    """Each cache group has blocks of its own, and a prefix is there only if each group that needs
    it has it. A router that does not learn the group of a stored block takes it for one of another
    group (vllm#44103)."""
    if fact.groups == 1:
        return
    yield holds_if(fact.group_tokens is not None) or because(
        reason("groups", "the engine has {groups} cache groups", groups=fact.groups),
        reason("nameless", "an event of stored blocks names none of them"),
        # Such an event could name the group of its hashes all the same.
        excuses=() if fact.tokens else (release("the event has no tokens either"),),
    )


@check(
    "an event of stored blocks names the tokens of the blocks",
    origin="take_events, BlockStored.token_ids; vllm#51614",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def events_name_their_tokens(fact: Announced) -> Iterator[Judged]:
    """A router makes its own keys of tokens. The hashes of an event are of no use to a router that
    has not seen the tokens of these blocks in another event. An ideal, because most connectors send
    hashes alone: a connector that names tokens, and no longer does, is told beside its base."""
    yield holds_if(fact.tokens) or because(
        reason("stored", "an event of stored blocks has {hashes} hashes", hashes=fact.hashes),
        reason("no_tokens", "it has no tokens"),
        # No choice: nobody gains by an event that a router cannot read.
        excuses=(release("the event has hashes alone"),),
    )


@check(
    "a block that a store has is not stored again",
    origin="take_events, BlockStored",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def stored_blocks_are_announced_once(fact: Announced, past: Past) -> Iterator[Judged]:
    """What is stored again takes the link to the memory and room there, and a router gets the same
    event twice. An ideal, because a store may also report a block that it uses again: a connector
    that reports more of them than before is told beside its base."""
    if not fact.again:
        yield holds()
        return
    excuses = [choice("a store may report blocks that it uses again")]
    if fact.several:
        excuses.append(choice("two connectors of the engine have the same memory"))
    if fact.soon:
        # No choice: what is copied already needs no second copy. `SimpleCPUOffloadConnector` looks
        # whether a block is being copied, not whether another block with its tokens is.
        excuses.append(release("a copy of another block with the same tokens was in progress"))
    if past.may_fail:
        excuses.append(choice("the memory behind the connector may have lost its content"))
    yield because(
        reason(
            "were_stored",
            "events said of {again} blocks that they were stored, and none that they were removed",
            again=fact.again,
        ),
        reason("are_stored", "another event says that they were stored"),
        excuses=excuses,
    )
