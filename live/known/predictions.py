"""Where vLLM predicts another number of blocks than it takes."""

from kvproof.live.known.facts import admission, after, allocation, choices, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.events import Admit
from kvproof.model.known_finding import known_finding
from kvproof.model.step import Step


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
