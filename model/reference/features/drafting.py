"""Drafts: tokens that a drafter proposes and the next step verifies (speculative decoding).

A step computes the draft tokens of a request after its known tokens. The environment chooses how
many are accepted, and the step's output reports it: accepted drafts become tokens, the others are
rejected. The drafter proposes the full number of drafts after each sampled token.

Where steps overlap, a step is scheduled as if all drafts of the step before were accepted. Its
tokens are known when that step has ended, and only then the worker executes it.

Sources: `Scheduler.update_from_output` and `update_draft_token_ids` of vLLM V1; of its worker
`preprocess_mamba` and `postprocess_mamba_fused_kernel`, for a Mamba group in align mode.
"""

from kvproof.model import config
from kvproof.model.state import SAMPLED, Request


def computable(cfg: config.EngineConfig, request: Request, start: int, admitted: bool) -> int:
    """The number of tokens that a step may compute after the known tokens of a request: its drafts.
    A request that is admitted with one token left may get padding up to the width of the other
    requests; padding is no draft and is never accepted."""
    fill = admitted and len(request.tokens) - start == 1
    return cfg.drafts if fill else request.drafts


def scheduled(request: Request, ahead: int) -> Request:
    """The request with the drafts that a step verifies. The step ends `ahead` tokens after the
    known and pending tokens; drafts after its end are dropped."""
    return request._replace(drafts=max(min(request.drafts, ahead), 0))


def lengthened(request: Request, tokens: int) -> Request:
    """The request with more sampled tokens, at most `max_tokens` in total. Dropped tokens still
    count as computed; vLLM may differ here, because the request ends."""
    tokens = min(tokens, request.max_tokens - len(request.output))
    return request._replace(output=request.output + SAMPLED * tokens)
