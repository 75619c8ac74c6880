"""Turn the numbers that refute a claim into a cluster template.

The name of a variable determines its meaning, in every obligation and count-level system. Lists of
blocks are interpreted as in vLLM: both lists are of one prompt, and P's begins at the start of the
prompt, so D's begins later, after a hit.
"""

from collections.abc import Mapping

from kvproof.model.counting_abstraction import table
from kvproof.proofs.cluster_template import STATE, ClusterTemplate

FLAGS = ("full", "window", "mamba")
"""Kinds of groups, as variables that are 0 or 1."""

CHUNKS = ("chunk_limit", "chunk")
"""The token budget of a step."""

Numbers = Mapping[str, int]


def template_of(numbers: Numbers, system: str = "") -> ClusterTemplate:
    """The template of the cluster that the numbers describe. `system` is the name of their
    count-level system."""
    kind = system.removeprefix("transfer of ")
    kinds = _kinds(numbers, kind)
    backoff = int("mamba" in kinds or STATE in kinds)
    shared, prompt = _tokens(numbers, backoff)
    chunk = next((numbers[n] for n in CHUNKS if n in numbers), max(2 * prompt, 8))
    return ClusterTemplate(
        kinds=kinds,
        kernel=_kernel(numbers),
        p_ratio=_first(numbers, ("p_ratio", "remote_ratio"), 1),
        d_ratio=_first(numbers, ("d_ratio", "local_ratio"), 1),
        window=1 if "mamba" in numbers else numbers.get("window", 1),
        chunk=chunk,
        prompt=max(prompt, 1),
        shared=shared,
        max_tokens=_first(numbers, ("max_tokens", "chosen_max_tokens"), 1),
        total=numbers.get("total"),
        connected=_connected(numbers, kind),
        caching=numbers.get("caching", 1) == 1,
        embeds=numbers.get("embeds", 0) == 1,
        crowded=numbers.get("status") == table.PREEMPTED and numbers.get("sends") == 1,
        recomputes=numbers.get("recomputes", 0) == 1,
        evicting=numbers.get("chosen_lacking", 0) > 0,
    )


def _first(numbers: Numbers, names: tuple[str, ...], otherwise: int) -> int:
    return next((numbers[n] for n in names if n in numbers), otherwise)


def _kernel(numbers: Numbers) -> int:
    """Tokens of a kernel block. Where there is no ratio, a block is one kernel block."""
    return max(_first(numbers, ("kernel", "kernel_tokens", "block_size"), 1), 1)


def _kinds(numbers: Numbers, kind: str) -> tuple[str, ...]:
    """The kinds of groups: those named, and a Mamba group if P leaves a token to D."""
    if "mamba" in numbers:
        return tuple(k for k in FLAGS if numbers[k])
    if kind == STATE:
        return ("full", STATE)
    backoff = _first(numbers, ("backoff", "d_backoff"), 0)
    # Only the lists of a Mamba group have slots without positions. Variables of the align split, or
    # of a group's own hit, mean a Mamba group too.
    slots_only = "local_slots" in numbers and not {"local_first", "local_ratio"} & set(numbers)
    state = slots_only or bool({"chunk_limit", "own_blocks"} & set(numbers))
    state = state or kind == "mamba" or backoff >= 1
    window = kind == "window" or (not kind and "window" in numbers)
    return ("full", *(("window",) if window else ()), *(("mamba",) if state else ()))


def _tokens(numbers: Numbers, backoff: int) -> tuple[int, int]:
    """Tokens of a prompt that were seen before, and of the whole prompt."""
    size = _kernel(numbers)
    blocks = _first(numbers, ("hit_blocks", "own_blocks"), -1)
    if blocks >= 0:
        hit = blocks * numbers.get("local_ratio", 1) * size
        beyond = _first(numbers, ("external", "beyond"), 1)
        end = numbers["tokens"] * size if "tokens" in numbers else hit + beyond
        return hit, end + backoff
    if "local_slots" in numbers:
        return _of_lists(numbers, size, backoff)
    if "boundary_blocks" in numbers:
        return numbers["boundary_blocks"] * size, numbers["known"]
    submitted = _first(
        numbers, ("chosen_submitted_prompt_tokens", "submitted_prompt_tokens", "prompt"), 1
    )
    if "chosen_blocks" in numbers:
        return numbers["chosen_blocks"] * size, submitted
    return _first(numbers, ("chosen_hit", "hit"), 0), submitted


def _of_lists(numbers: Numbers, size: int, backoff: int) -> tuple[int, int]:
    """The tokens that two lists of slots represent; the later start is interpreted as D's hit."""

    def first(side: str, ratio: int) -> int:
        return numbers.get(f"{side}_first", numbers.get(f"{side}_blocks_before", 0) * ratio)

    starts = (
        first("local", numbers.get("local_ratio", 1)),
        first("remote", numbers.get("remote_ratio", 1)),
    )
    ends = (starts[0] + numbers["local_slots"], starts[1] + numbers["remote_slots"])
    return abs(starts[0] - starts[1]) * size, max(ends) * size + backoff


def _connected(numbers: Numbers, kind: str) -> bool:
    """Whether there are a P and a D. A pool and the chunks of a prefill need one engine only."""
    if kind == "pool" or "chunk_limit" in numbers:
        return False
    return numbers.get("connected", 1) == 1
