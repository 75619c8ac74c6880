"""What releases do one way or another and are right to: what the spec leaves open, as faults that
break nothing. The model beside such a release must do the same."""

from kvproof.model import config, coordinator
from kvproof.model.faults.fault import Fault
from kvproof.model.rules import Rules
from kvproof.model.state import Engine, Request


def at_once(
    cfg: config.Engine, engine: Engine, request: Request, rules: Rules
) -> tuple[Engine, Request]:
    """With a drafter all known tokens but the last are cached when the output arrives."""
    if not cfg.drafts:
        return engine, request
    settled = min(request.computed, len(request.tokens) - 1)
    return coordinator.cache(cfg, engine, request, settled, rules)


ACCEPTED_CACHED_AT_ONCE = Fault(
    name="accepted_cached_at_once",
    born_of="vLLM 0.33.0",
    mistake="none: what accepted drafts fill is cached with their output, not with the next step",
    replaces=("cache_with_output", at_once),
    breaks=(),
    cluster="ngram-drafts",
)

COMPUTED_ENDS_WITH_OUTPUT = Fault(
    name="computed_ends_with_output",
    born_of="vLLM 0.33.0",
    mistake="none: of an answer that ends among its drafts all but the last token are computed",
    replaces=("computed_past_the_end", lambda _tokens: 0),
    breaks=(),
    cluster="pd-drafts",
)
