"""KV transfers from P to D, and their failures."""

from kvproof.invariants.goals.goal import Goal, Possible, happens
from kvproof.invariants.parties import coming_to, giver
from kvproof.model.config import Cluster
from kvproof.model.events import (
    Abort,
    FinishLoad,
    LeaseExpire,
    Schedule,
    Submit,
    TransferFail,
    TransferLost,
)
from kvproof.model.state import FAILED, LOADING
from kvproof.model.step import Step


def _trims(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    for admission in step.effects.admissions:
        name = coming_to(cluster, admission.engine, admission.request)
        transfer = step.after.transfer(name) if admission.external else None
        if transfer is None:
            continue
        p = giver(cluster, name).engine
        for group, remote, (_, theirs) in zip(
            p.groups, transfer.remote, transfer.pairs, strict=False
        ):
            if group.attention and 0 < len(theirs) < len(remote) * p.physical_per_logical:
                return True
    return False


def _recomputes(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    engine = step.before.engine(event.engine)
    ended = [c.request for c in event.chose or () if isinstance(c, FinishLoad)]
    return any(engine.request(name).status == FAILED for name in ended)


def _aborts_load(_cluster: Cluster, step: Step, event: Abort) -> bool:
    request = step.before.engine(event.engine).find(event.request)
    return request is not None and request.status == LOADING


def _truncates(_cluster: Cluster, step: Step, event: Submit) -> bool:
    request = step.after.engine(event.engine).find(event.request)
    return request is not None and len(request.prompt) < request.submitted_prompt_tokens


def _pair_with(has: Possible) -> Possible:
    return lambda cluster: cluster.disaggregated and has(cluster)


def _hits_beside_load(cluster: Cluster) -> bool:
    return cluster.decode.prefix_caching


def _fails(cluster: Cluster) -> bool:
    """A read may also be refused: P's read of the tokens that D kept until its lease expired."""
    return cluster.failures > 0 or cluster.follow_up_turns


def _somebody_waits(cluster: Cluster) -> bool:
    """If nothing is lost, fails or is kept for later, each waiting engine gets an answer."""
    return cluster.losses or _fails(cluster) or cluster.pushes or cluster.follow_up_turns


def _loses(cluster: Cluster) -> bool:
    return cluster.losses and not cluster.pushes


def _recomputing(cluster: Cluster) -> bool:
    return cluster.failures > 0 and cluster.load_failure == "recompute"


GOALS = (
    Goal(
        "trimmed_transfer",
        "P offers more blocks than D reads",
        *(Schedule, _trims, "pd-full", "pd-embeds", _pair_with(_hits_beside_load)),
    ),
    Goal(
        "truncation",
        "P truncates a prompt for D",
        *(Submit, _truncates, "pd-embeds", "hybrid", _pair_with(lambda c: c.prefill.has_state)),
    ),
    Goal(
        "failed_load",
        "a read fails",
        *(TransferFail, happens, "pd-failing", "pd-full", _pair_with(_fails)),
    ),
    Goal(
        "recomputed_load",
        "a request computes its prompt itself after its load failed",
        *(Schedule, _recomputes, "pd-recomputing", "pd-failing", _pair_with(_recomputing)),
    ),
    Goal(
        "lost_load",
        "the end of a read is never reported",
        *(TransferLost, happens, "pd-losing", "pd-full", _pair_with(_loses)),
    ),
    Goal(
        "aborted_load",
        "a request is aborted while it loads",
        *(Abort, _aborts_load, "pd-losing", "pd-full", _pair_with(lambda c: c.aborts)),
    ),
    Goal(
        "lease_expiry",
        "the lease of blocks that one engine keeps for the other expires",
        *(LeaseExpire, happens, "pd-losing", "pd-full", _pair_with(_somebody_waits)),
    ),
)
