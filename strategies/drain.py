"""The end of a run: under fair scheduling every submitted request must finish.

Under fair scheduling, both engines are scheduled in turn, D receives what P offers, every read
succeeds, every lease that is not renewed expires, and the user of every session continues it. There
are no further disturbances.
"""

from collections.abc import Callable, Iterator

from kvproof.model import termination
from kvproof.model.because import Reason, reason
from kvproof.model.config import Cluster
from kvproof.model.events import (
    Complete,
    Continue,
    Event,
    LeaseExpire,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
)
from kvproof.model.finding import Finding
from kvproof.model.step import BlockRefusal
from kvproof.strategies.run import Run
from kvproof.strategies.waits import HangContext, repeats, stuck

FAIR = (Complete, Submit, Continue, TransferDone, TransferFail, Schedule, LeaseExpire)
"""The kinds of event of a round, in order. A read fails only if it cannot succeed any more."""

NOTHING_CHANGES = reason("nothing_changes", "a whole fair round changes nothing")


def rounds_max(cluster: Cluster) -> int:
    """The number of rounds after which the traffic must have ended. In each round, the request that
    an engine serves first gains at least one token. So twice the number of all tokens, plus some
    rounds for transfers, is more than enough."""
    tokens = sum(job.tokens_most for job in cluster.jobs)
    return 2 * len(cluster.engines) * (tokens + 4 * len(cluster.jobs) + 4)


def _fair(run: Run) -> Iterator[Event]:
    """The events of one round that are still possible when their turn comes."""
    cluster = run.machine.cluster
    for kind in FAIR:
        for event in [e for e in run.stimuli if isinstance(e, kind)]:
            new = isinstance(event, Submit) and not (
                cluster.disaggregated and event.engine == cluster.decode.name
            )
            # Events of different kinds are equal as tuples, so the kind is compared as well.
            still = any(isinstance(e, kind) and e == event for e in run.stimuli)
            chosen = isinstance(event, TransferFail) and TransferDone(event.request) in run.stimuli
            if still and not new and not chosen:
                yield event


def over(run: Run) -> bool:
    """Whether there is no further round: all requests have finished, or an engine is dead."""
    return run.dead or termination.over(run.machine.state)


def drain(run: Run, invariant: str | None, over: Callable[[Run], bool] = over) -> None:
    """Drive a run to its end. The death of an engine also ends the run; another invariant reports
    it. `over` says which other states count as the end.

    Raises Violated with the `eventually` invariant of this id if the run does not reach its end
    (None: that is not checked), or with any invariant that breaks before it.
    """
    most = rounds_max(run.machine.cluster)
    end = reason("rounds_do_not_end", "{rounds} fair rounds do not end it", rounds=most)
    for _ in range(most):
        if over(run):
            return
        if not take_round(run):
            end = NOTHING_CHANGES
            break
    if invariant is not None and not over(run):
        run.fail(unfinished(run, invariant, end))


def take_round(run: Run) -> bool:
    """Take the events of one fair round. Returns whether they changed anything."""
    before = run.machine.state
    for event in _fair(run):
        run.take(event)
    return run.machine.state != before


def unfinished(run: Run, invariant: str, end: Reason) -> Finding:
    """The finding that a run does not reach its end, with the evidence."""
    machine = run.machine
    context = HangContext(_loop(run), _refused(run), machine.name == "live")
    why, about = stuck(machine.cluster, machine.state, context)
    return Finding(invariant, (*why, end), about)


def _loop(run: Run) -> list[Event]:
    """The last events, from an earlier state to the same state; none where the state is new."""
    states = [*(step.before for step in run.steps[:1]), *(step.after for step in run.steps)]
    lead = repeats(states)
    return [] if lead is None else [step.event for step in run.steps[lead:]]


def _refused(run: Run) -> list[BlockRefusal]:
    """The requests for which vLLM had no blocks in the last step of their engine."""
    last = {s.event.engine: s for s in run.steps if isinstance(s.event, Schedule)}
    return [refusal for step in last.values() for refusal in step.effects.refused]
