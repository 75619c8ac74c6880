"""A turn of one token that P has loaded counts no token as computed, because the last token of a
prompt is computed again. vLLM then takes it for a new request, and asks a second time."""

from kvproof.live.deviations.facts import on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import LOADED, LOADING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """A follow-up turn of one token, which P has loaded, waits for its load once more."""
    if not (cluster.follow_up_turns and on_prefill(cluster, about) and about.request):
        return False
    was = step.before.engine(about.engine).find(about.request)
    now = step.after.engine(about.engine).find(about.request)
    if was is None or now is None or not cluster.job(was.id).follows:
        return False
    again = (was.status, now.status) == (LOADED, LOADING)
    return again and len(was.tokens) == was.computed == now.computed == 1


DEVIATION = Deviation(
    name="one_token_turn_is_loaded_again",
    in_vllm="NixlPullConnectorScheduler.get_num_new_matched_tokens",
    says="P asks a second time for a turn of one token that it has loaded, and no read begins",
    signatures=(
        seen("computed_tokens_are_those_scheduled", "Schedule")
        | seen("status_follows_the_event", "Schedule")
        | seen("counter_counts_only_cached", "Schedule", on=("full", "window", "mamba"))
    ),
    at_work=at_work,
)
