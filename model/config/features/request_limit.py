"""A limit on the number of requests that run at the same time."""

from kvproof.model.config.engine import REQUESTS_MAX, EngineConfig
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="request_limit",
    section="engine",
    name="a limit on running requests",
    words="a limit on running requests",
    options="`max_requests`",
    of=EngineConfig,
    used=lambda engine: engine.max_requests < REQUESTS_MAX,
    draw=lambda settings: settings.on_engines(max_requests=settings.choose((1, 2))),
)
