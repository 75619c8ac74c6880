"""Speculative decoding: a drafter proposes tokens."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Exclusion, Feature, Limit, Refusal

NUMBERS = (1, 2, 3)
"""Drafts for each sample, in a random cluster."""


def _passes_two_boundaries(engine: EngineConfig) -> bool:
    state = engine.aligned_group
    return state is not None and engine.drafts >= state.block_size


def _sample_fits_a_step(engine: EngineConfig) -> Refusal | None:
    if engine.drafts and engine.chunk_tokens <= engine.drafts:
        return Refusal(
            f"A step of engine {engine.name} has {engine.chunk_tokens} tokens, and a sample with "
            f"its {engine.drafts} drafts needs more: vLLM then never admits a prompt that is "
            "almost completely cached",
            f"chunk_tokens of at least {engine.drafts + 1}, or fewer drafts",
        )
    return None


FEATURE = Feature(
    id="drafts",
    section="engine",
    name="drafts",
    words="speculative decoding",
    options="`drafts`",
    of=EngineConfig,
    used=lambda engine: engine.drafts > 0,
    on="drafts, the number of tokens that the drafter proposes",
    off="drafts 0",
    exclusions=(
        Exclusion(
            of=EngineConfig,
            beside=("mamba",),
            where=_passes_two_boundaries,
            only="as many as a Mamba block has tokens",
            because="where one step may then pass two block boundaries while its worker keeps "
            "one state",
            instead="fewer drafts than a Mamba block has tokens",
        ),
    ),
    limits=(Limit(of=EngineConfig, check=_sample_fits_a_step),),
    draw=lambda settings: settings.on_engines(drafts=settings.choose(NUMBERS)),
)
