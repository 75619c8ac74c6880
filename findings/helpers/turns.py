"""A conversation of P and D with `bidirectional_kv_xfer`: P loads what D holds of the turn before.
All tokens are 1, so that a next turn begins with the prompt and the answer of the first."""

from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds

from findings.helpers.utils import create_model_runner_output, create_request


def step(scheduler: Scheduler, **reports: Any) -> tuple[SchedulerOutput, Any]:
    """Take a step: each request with a computed prompt samples one token, after its drafts, which
    are all right, and gets new drafts. Returns the transfer parameters of the request that ends,
    too."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    ran = create_model_runner_output(reqs, **reports)
    drafts = output.scheduled_spec_decode_tokens
    ran.sampled_token_ids = [
        [1, *(1 for draft in drafts.get(request.request_id, ()) if draft >= 0)]
        if request.num_computed_tokens >= request.num_tokens
        else []
        for request in reqs
    ]
    outputs = scheduler.update_from_output(output, ran)
    if scheduler.num_spec_tokens and reqs:
        proposed = [[1] * scheduler.num_spec_tokens for _ in reqs]
        scheduler.update_draft_token_ids(DraftTokenIds(ran.req_ids, proposed))
    return output, next((each.kv_transfer_params for each in outputs[0].outputs), None)


def first_turn(prefill: Scheduler, decode: Scheduler, prompt: int, answer: int) -> dict[str, Any]:
    """Serve a prompt of so many tokens: P computes it, D loads it and answers. Returns the transfer
    parameters in D's answer, with which the client sends its next turn to P."""
    prefill.add_request(create_request(1, prompt, prompt, do_remote_decode=True))
    request = create_request(1, prompt, prompt, max_tokens=answer)
    while not request.kv_transfer_params:
        _, request.kv_transfer_params = step(prefill)
    decode.add_request(request)
    step(decode)
    step(prefill, finished_sending={"id-1"})
    _, held = step(decode, finished_recving={"id-1"})
    while held is None:
        _, held = step(decode)
    return dict(held)
