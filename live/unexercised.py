"""Abstract steps of the model that live vLLM is never driven to, each with the reason."""

REASONS: dict[str, str] = {}
