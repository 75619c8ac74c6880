"""What the spec leaves open: the reference with another policy, that of 0.33.0, breaks no guard
and no invariant."""

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.model import config, coordinator
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.rules import SPEC, Rules
from kvproof.model.state import Engine, Request
from kvproof.strategies.conformance import Watched
from kvproof.strategies.stateful import sample
from kvproof.strategies.verdict import Verdict


def cached_at_once(
    cfg: config.Engine, engine: Engine, request: Request, rules: Rules
) -> tuple[Engine, Request]:
    """What accepted drafts fill is cached with their output, not with the next step."""
    settled = min(request.computed, len(request.tokens) - 1)
    return coordinator.cache(cfg, engine, request, settled, rules)


def counted_up_to_the_end(_tokens: int) -> int:
    """Of an answer that ends among its drafts none of those beyond the end counts as computed."""
    return 0


@pytest.mark.parametrize(
    ("rule", "function", "preset"),
    [
        ("cache_with_output", cached_at_once, "ngram-drafts"),
        ("computed_past_the_end", counted_up_to_the_end, "pd-drafts"),
    ],
)
def test_another_policy_is_allowed(rule: str, function: Callable[..., Any], preset: str) -> None:
    differed = []

    def noted(*args: Any) -> Any:
        done = function(*args)
        differed.append(done != getattr(SPEC, rule)(*args))
        return done

    rules = SPEC.with_rule(rule, noted)
    outcome = sample(lambda c: Watched(ModelMachine(c, rules)), CLUSTERS[preset], examples=60)
    assert outcome.verdict is Verdict.SAMPLED, outcome.finding
    assert any(differed)
