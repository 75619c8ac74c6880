"""A state is also cached where prompts part, inside a block: an EAGLE hit resumes there."""

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="prefix_checkpoint",
    section="prefix cache",
    name="states where prompts part",
    words="states that are cached where prompts part, inside a block",
    options="`prefix_checkpoint`",
    of=EngineConfig,
    used=lambda engine: engine.prefix_checkpoint,
    off="prefix_checkpoint false",
    needs=("eagle", "partial_block_hits"),
)
