"""What a cluster can be, and what kvproof models of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvproof.model import config
from kvproof.model.errors import UsageError, unknown

if TYPE_CHECKING:
    from kvproof.model.config import Cluster, Engine, Job

TRANSFERS = ("pull", "push")


def check(cluster: Cluster) -> None:
    """Raises UsageError for a cluster that cannot be, or that is not modelled."""
    names = [e.name for e in cluster.engines]
    if not names or len(set(names)) < len(names):
        raise UsageError(
            f"The engines {names} are none or share a name. Write one or two engines with "
            "different names."
        )
    roles = sorted(e.role for e in cluster.engines)
    if roles not in (["both"], ["decode", "prefill"]):
        raise UsageError(
            f"A cluster of roles {roles} is not known. Write one engine of role both, or one "
            "prefill and one decode engine."
        )
    if cluster.load_failure not in ("fail", "recompute"):
        raise unknown("load failure policy", cluster.load_failure, ("fail", "recompute"))
    if cluster.stray and not cluster.disaggregated:
        raise UsageError(
            f"Cluster {cluster.name} has stray reports and no hand-over to report. "
            "Write one prefill and one decode engine, or stray false."
        )
    if cluster.oversized and cluster.disaggregated:
        raise UsageError(
            f"Cluster {cluster.name} hands over and is oversized, which kvproof does not model. "
            "Write one engine of role both, or oversized false."
        )
    if any(e.store for e in cluster.engines) and any(j.embeds for j in cluster.jobs):
        raise UsageError(
            "A job is sent as embeddings to an engine with a store, which knows prompts by "
            "their token ids. Write embeds false, or store false."
        )
    if any(e.kv_events for e in cluster.engines) and any(j.embeds for j in cluster.jobs):
        raise UsageError(
            "A job is sent as embeddings to an engine with KV events, which could not tell its "
            "tokens. Write embeds false, or kv_events false."
        )
    _check_failing_store(cluster)
    _check_sessions(cluster)
    ranked = next((j.name for j in cluster.jobs if j.priority), None)
    if ranked is not None and not cluster.by_priority:
        raise UsageError(
            f"Job {ranked} has a priority and no engine goes by it. Write policy priority for "
            "an engine, or leave the priority out."
        )
    if cluster.disaggregated:
        _check_pair(cluster.prefill, cluster.decode)
    _check_turns(cluster)
    _check_push(cluster)


def _check_push(cluster: Cluster) -> None:
    if cluster.transfer not in TRANSFERS:
        raise unknown("transfer", cluster.transfer, TRANSFERS)
    if not cluster.pushes:
        return
    if not cluster.disaggregated:
        raise UsageError(
            f"Cluster {cluster.name} pushes and has nobody to push to. "
            "Write one prefill and one decode engine, or transfer pull."
        )
    if cluster.follow_up_turns:
        raise UsageError(
            f"Cluster {cluster.name} has turns and pushes, and vLLM's push connector hands nothing "
            "back to P. Write transfer pull, or turns false."
        )
    if cluster.prefill.physical_per_logical != cluster.decode.physical_per_logical:
        raise UsageError(
            f"P and D of {cluster.name} have unequal physical_per_logical and P pushes, which "
            "kvproof does not model. Write the same number for both, or transfer pull."
        )


def _check_failing_store(cluster: Cluster) -> None:
    engine = cluster.engines[0]
    alone = len(engine.groups) == 1 and engine.groups[0].kind == "full"
    if engine.store and cluster.failures and not alone:
        raise UsageError(
            f"The store of {cluster.name} may fail beside groups other than one of full "
            "attention, where vLLM's report of the blocks means nothing. Write one full group, "
            "or failures 0."
        )
    if engine.store and cluster.failures and engine.drafts and engine.overlaps:
        raise UsageError(
            f"The store of {cluster.name} may fail beside drafts and steps that overlap, which "
            "kvproof does not model. Write failures 0, drafts 0 or steps_in_flight 1."
        )


def _check_turns(cluster: Cluster) -> None:
    later = next((j for j in cluster.jobs if j.follows), None)
    if later is not None and not cluster.follow_up_turns:
        raise UsageError(
            f"Job {later.name} follows another, and {cluster.name} has no turns. Write turns "
            "true, or leave follows out."
        )
    if not cluster.follow_up_turns:
        return
    if not cluster.disaggregated or cluster.prefill.physical_per_logical != (
        cluster.decode.physical_per_logical
    ):
        raise UsageError(
            f"Cluster {cluster.name} has turns and not a P and a D with the same kernel blocks "
            "per block, which kvproof does not model. Write such a pair, or turns false."
        )
    if any(e.drafts and e.has_state for e in cluster.engines):
        raise UsageError(
            f"Turns on {cluster.name}, with drafts beside a Mamba group, are not modelled. "
            "Write drafts 0, or turns false."
        )
    for index, job in enumerate(cluster.jobs):
        _check_turn(job, cluster.jobs[:index])


def _check_turn(job: Job, before: tuple[Job, ...]) -> None:
    if job.embeds or job.name.endswith(config.BACK):
        raise UsageError(
            f"Job {job.name} is sent as embeddings, or its name ends with '{config.BACK}', in a "
            "cluster with turns. Write embeds false, and another name."
        )
    if not job.follows:
        return
    first = next((j for j in before if j.name == job.follows), None)
    if first is None or any(j.follows == job.follows for j in before):
        raise UsageError(
            f"Job {job.name} follows {job.follows}, which no job before it is called, or which "
            "another one follows. Write the name of an earlier job that nobody follows."
        )
    if any(a != b for a, b in zip(job.prompt, first.conversation, strict=False)):
        raise UsageError(
            f"Job {job.name} follows {first.name} and begins otherwise than its prompt and "
            "answer, which vLLM leaves to the router to see (vllm#43094). Write a prompt that "
            f"begins as {first.conversation!r} or is its beginning, or leave follows out."
        )


def _check_sessions(cluster: Cluster) -> None:
    parted = next((j.name for j in cluster.jobs if j.parts), None)
    if parted is not None and not cluster.sessions:
        raise UsageError(
            f"Job {parted} comes in parts, and {cluster.name} has no sessions. Write sessions "
            "true, or leave the parts out."
        )
    engine = cluster.engines[0]
    rolls_back = engine.overlaps and not engine.has_state
    plain = engine.role == "both" and (rolls_back or not engine.drafts)
    if cluster.sessions and not plain:
        raise UsageError(
            f"Sessions on {cluster.name}, with a hand-over, or with drafts in steps that do not "
            "overlap or beside a Mamba group, are not modelled. Write one engine without these, "
            "or sessions false."
        )
    if cluster.sessions and engine.hash_lookahead_tokens:
        raise UsageError(
            f"Sessions on {cluster.name} drop the last token of an answer, which the hash of the "
            "block before it may cover: kvproof does not model that. Use hash_lookahead_tokens 0, "
            "or sessions false."
        )
    if cluster.sessions and cluster.failures and engine.overlaps:
        raise UsageError(
            f"Sessions on {cluster.name}, with a store that fails beside steps that overlap, are "
            "not modelled. Write failures 0 or steps_in_flight 1, or sessions false."
        )


def _check_pair(p: Engine, d: Engine) -> None:
    if [(g.kind, g.window, g.mode) for g in p.groups] != [
        (g.kind, g.window, g.mode) for g in d.groups
    ]:
        raise UsageError(
            "P and D have different cache groups. Write the same kinds, windows and modes in "
            "the same order on both."
        )
    if [g.eagle for g in p.groups] != [g.eagle for g in d.groups]:
        raise UsageError(
            "The drafter has layers in other cache groups on P than on D, which NIXL could not "
            "pair. Write eagle for the same groups on both."
        )
    for i, group in enumerate(p.groups):
        if group.attention and p.kernel_tokens(i) != d.kernel_tokens(i):
            raise UsageError(
                f"The kernel blocks of group {i} hold {p.kernel_tokens(i)} tokens on P and "
                f"{d.kernel_tokens(i)} on D. Write block_size / physical_per_logical equal."
            )
    if p.has_state and p.physical_per_logical != d.physical_per_logical:
        raise UsageError(
            "P and D have unequal physical_per_logical beside a Mamba group. vLLM's handshake "
            "refuses that where D caches prefixes. Write the same number for both."
        )
    _check_windows(p, d)


def _check_windows(p: Engine, d: Engine) -> None:
    """P keeps whole blocks of a window. Where a block of D can begin before them, inside a block of
    P, nobody has the KV for its first part, and D would cache the block."""
    ratios = p.physical_per_logical, d.physical_per_logical
    if any(g.kind == "window" for g in d.groups) and ratios[0] % ratios[1]:
        raise UsageError(
            f"The physical_per_logical of P, {ratios[0]}, is no multiple of D's, {ratios[1]}, "
            "beside a window, of which P keeps less than a block of D may hold. Use a multiple of "
            "D's for P, or groups without a window."
        )
