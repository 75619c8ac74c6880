"""The transfer from P to D: both count the same number of tokens (the N-1 rule, vllm#37310)."""

import itertools
from typing import Annotated

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, all_of, both, implies
from kvproof.model.arithmetic.ranges import Bit, Natural, Positive, at_least
from kvproof.model.reference.transfers import offers
from kvproof.proofs.obligation import Claim, obligation


@obligation(
    "P shortens a prompt at most once, even if it is preempted and rescheduled several times",
    origin="vllm#37310",
    killed_by="truncation_without_guard",
)
def truncated_once(submitted_prompt_tokens: Positive, backoff: Natural) -> Claim:
    """The first result is a fixed point: applying the rule again, any number of times, gives the
    same result. P recognizes a shortened prompt because it is shorter than the submitted prompt."""
    once = counts.prompt_after_truncation(submitted_prompt_tokens, backoff, False)
    again = counts.prompt_after_truncation(once, backoff, once < submitted_prompt_tokens)
    return Claim(again == once)


@obligation(
    "P leaves at most the backoff to D and keeps a token, also if the rule is applied repeatedly",
    origin="vllm#37310",
    killed_by="truncation_without_guard",
)
def truncation_is_bounded(
    submitted_prompt_tokens: Positive, prompt: Positive, backoff: Natural
) -> Claim:
    """Induction step: the bound holds before the first application of the rule, and one more
    application preserves it."""
    later = counts.prompt_after_truncation(prompt, backoff, prompt < submitted_prompt_tokens)
    return Claim(
        all_of(
            submitted_prompt_tokens - backoff <= later, later <= submitted_prompt_tokens, later >= 1
        ),
        given=both(submitted_prompt_tokens - backoff <= prompt, prompt <= submitted_prompt_tokens),
    )


@obligation(
    "P and D back off by the same number of tokens, for all kinds of cache groups and prompts",
    origin="vllm#37310",
    killed_by="truncates_for_any_non_full_group",
)
def same_backoff(full: Bit, window: Bit, mamba: Bit, embeds: Bit) -> Claim:
    """Each variable is 1 where the engines have a group of that kind, or the prompt is given as
    embeddings. The functions take kinds and not numbers, so every combination is one case."""
    cases = []
    for values in itertools.product((0, 1), repeat=4):
        switches = zip(("full", "window", "mamba"), values[:3], strict=True)
        kinds = tuple(kind for kind, on in switches if on)
        on_prefill = offers.backoff_on_prefill(kinds, values[3] == 1)
        same = on_prefill == offers.backoff_on_decode(kinds)
        chosen = zip((full, window, mamba, embeds), values, strict=True)
        cases.append(implies(all_of(*(variable == value for variable, value in chosen)), same))
    return Claim(all_of(*cases), given=full + window + mamba >= 1)


@obligation(
    "the prompt tokens P delivers are the tokens D counts as computed after the load",
    origin="vllm#37310",
    killed_by="decode_loads_whole_prompt",
)
def delivered_is_counted(submitted_prompt_tokens: Positive, backoff: Bit) -> Claim:
    """P ends its prefill at the shortened prompt, and so delivers the state there; applying the
    rule again does not change the length (`truncated_once`)."""
    delivered = counts.prompt_after_truncation(submitted_prompt_tokens, backoff, False)
    return Claim(delivered == counts.tokens_loaded_by_decode(submitted_prompt_tokens, backoff))


@obligation(
    "where a state is transferred, D loads all of a longer prompt but its last token",
    origin="vllm#37310",
    killed_by="decode_loads_whole_prompt",
)
def decode_owns_the_last_token(prompt: Annotated[Num, at_least(2)]) -> Claim:
    """D applies the last prompt token to the state of the tokens before it, exactly once."""
    return Claim(counts.tokens_loaded_by_decode(prompt, 1) == prompt - 1)
