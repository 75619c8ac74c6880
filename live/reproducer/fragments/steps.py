"""Steps of a scheduler, whose worker is made up."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

from kvproof.live.reproducer.fragments.stores import keep

TOKEN, DRAFT = ord("."), ord("?")
DRAFTS = 1


class Step(NamedTuple):
    """A step, and the requests that sample a token in it."""

    output: SchedulerOutput
    samples: list[str]


def schedule(scheduler: Scheduler) -> Step:
    """Schedule a step. A request samples where its last known token is computed."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    ran = [scheduler.requests[name] for name in names]
    keep(scheduler, ran)  #@ early_store
    ends = [r.request_id for r in ran if r.num_computed_tokens >= r.num_tokens]
    return Step(output, ends)


def update(
    scheduler: Scheduler,
    step: Step,
    accepted: Mapping[str, int] | None = None,  #@ drafts
    invalid_block_ids: Sequence[int] = (),  #@ failed_load
) -> dict[str, Any]:
    """The output of a step arrives. Returns `kv_transfer_params` of finished requests."""
    names = list(step.output.num_scheduled_tokens)
    keep(scheduler, [scheduler.requests[n] for n in names])  #@ late_store
    sampled: list[list[int]] = [[TOKEN] if n in step.samples else [] for n in names]
    for name, count in (accepted or {}).items():  #@ drafts
        if name in step.samples:  #@ drafts
            drafts = step.output.scheduled_spec_decode_tokens.get(name, [])  #@ drafts
            sampled[names.index(name)] += [TOKEN] * min(count, len(drafts))  #@ drafts
    outputs = scheduler.update_from_output(
        step.output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=KVConnectorOutput(  #@ failed_load
                invalid_block_ids=set(invalid_block_ids)  #@ failed_load
            ),  #@ failed_load
        ),
    )
    if names:  #@ proposed
        drafts = [[DRAFT] * DRAFTS for _ in names]  #@ proposed
        scheduler.update_draft_token_ids(DraftTokenIds(names, drafts))  #@ proposed
    return {
        output.request_id: output.kv_transfer_params
        for of_client in outputs.values()
        for output in of_client.outputs
        if output.kv_transfer_params
    }


def run_step(scheduler: Scheduler) -> dict[str, Any]:
    """A whole step: schedule, compute, sample, update."""
    return update(scheduler, schedule(scheduler))


def dispatch(scheduler: Scheduler, in_flight: deque[Step]) -> Step:
    """Schedule a step. Its output arrives later, or at once where it has no tokens."""
    step = schedule(scheduler)
    if step.output.num_scheduled_tokens:
        in_flight.append(step)
    else:
        update(scheduler, step)
    return step


def arrive(
    scheduler: Scheduler,
    in_flight: deque[Step],
    accepted: Mapping[str, int] | None = None,  #@ drafts
    invalid_block_ids: Sequence[int] = (),  #@ failed_load
) -> dict[str, Any]:
    """The output of the oldest step in flight arrives."""
    if not in_flight:
        return {}
    return update(
        scheduler,
        in_flight.popleft(),
        accepted,  #@ drafts
        invalid_block_ids,  #@ failed_load
    )


def run_steps(scheduler: Scheduler, steps: int) -> None:
    for _ in range(steps):
        run_step(scheduler)


def run_dispatched(scheduler: Scheduler, in_flight: deque[Step], steps: int) -> None:
    for _ in range(steps):
        arrive(scheduler, in_flight)
        dispatch(scheduler, in_flight)


def report(scheduler: Scheduler, **transfers: set[str]) -> None:
    """A worker reports ended transfers."""
    scheduler.update_from_output(
        SchedulerOutput.make_empty(),
        ModelRunnerOutput(
            req_ids=[],
            req_id_to_index={},
            kv_connector_output=KVConnectorOutput(**transfers),
        ),
    )
