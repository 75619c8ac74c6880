"""Sessions: jobs whose prompt arrives in several parts; each part is answered before the next
arrives.

Between two parts a session waits for its user and keeps its blocks. The last token of an answer was
sampled and, unless it is a draft, never computed: it is dropped, and the next part follows the
computed tokens. After the last part the user ends the session.

Source: `Scheduler._update_request_as_session` of vLLM V1. Not modelled: a part that arrives while
the part before is still being answered; vLLM queues it.
"""

from kvproof.model import config
from kvproof.model.config.extra_keys import with_no_token_dropped
from kvproof.model.state import SAMPLED, WAITING, Request


def next_part(request: Request, job: config.Job) -> str:
    """The next part of a session's prompt, empty after the last part."""
    sent = job.keyed_prompt
    for part in job.keyed_parts:
        if _typed(sent) == _typed(request.prompt):
            return part
        sent += part
    return ""


def _typed(prompt: str) -> str:
    return with_no_token_dropped(prompt).replace(SAMPLED, "")


def with_part(request: Request, part: str) -> Request:
    """A paused session after its next part arrived: the computed tokens are now part of its
    prompt."""
    kept = max(request.computed, len(request.tokens) - 1)  # none is computed after a preemption
    prompt = request.tokens[:kept] + part
    return request._replace(
        status=WAITING, prompt=prompt, submitted_prompt_tokens=len(prompt), output=""
    )
