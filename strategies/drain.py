"""The end of a run: under fair scheduling every submitted request must finish.

Fair means that both engines are scheduled in turn, D gets what P hands over, every read ends well
and every lease nobody renews ends. Nothing is disturbed any more. A read that was lost is never
reported again, so the request it belongs to is not waited for; all others are.
"""

from collections.abc import Iterator

from kvproof.invariants.invariant import Finding
from kvproof.model.config import Cluster
from kvproof.model.events import Complete, Event, LeaseExpire, Schedule, Submit, TransferDone
from kvproof.model.state import State
from kvproof.strategies.run import Run

FAIR = (Complete, Submit, TransferDone, Schedule, LeaseExpire)
"""The kinds of event of a round, in order."""


def waiting(state: State) -> list[str]:
    """What has not ended, one phrase each; requests whose read was lost are left out."""
    lost = {t.request for t in state.transfers if t.phase == "lost"}
    phrases = [
        f"{r.id} is {r.status} on {engine.name} "
        f"with {r.computed} of {len(r.tokens)} known tokens computed"
        for engine in state.engines
        for r in engine.requests
        if r.id not in lost
    ]
    phrases += [
        f"the hand-over of {t.request} is {t.phase}" for t in state.transfers if t.phase != "lost"
    ]
    phrases += [f"a step of {e.name} is in flight" for e in state.engines if e.step is not None]
    return phrases


def rounds_max(cluster: Cluster) -> int:
    """Rounds after which the traffic must have ended. On each engine the request that is served
    first gains a token a round, so that all tokens twice over, and some rounds for hand-overs, are
    more than enough."""
    tokens = sum(len(job.prompt) + job.max_tokens for job in cluster.jobs)
    return 2 * len(cluster.engines) * (tokens + 4 * len(cluster.jobs) + 4)


def _fair(run: Run) -> Iterator[Event]:
    """The events of one round that are still possible when their turn comes."""
    cluster = run.machine.cluster
    offered = [e for kind in FAIR for e in run.stimuli if isinstance(e, kind)]
    for event in offered:
        new = isinstance(event, Submit) and not (
            cluster.disaggregated and event.engine == cluster.decode.name
        )
        if not new and event in run.stimuli:
            yield event


def drain(run: Run, invariant: str | None) -> None:
    """Drive a run to its end. A dead engine ends it too: another invariant reports that.

    Raises Violated with the `eventually` invariant of this id where the end is not reached (None:
    the end is not asked for), or with any invariant broken on the way.
    """
    why = "no round ends the traffic"
    for _ in range(rounds_max(run.machine.cluster)):
        if run.dead or not waiting(run.machine.state):
            return
        before = run.machine.state
        for event in _fair(run):
            run.take(event)
        if run.machine.state == before:
            why = "a whole round changes nothing"
            break
    left = waiting(run.machine.state)
    if invariant is not None and left and not run.dead:
        fair = "every engine is scheduled in turn, every read and every lease ends"
        run.fail(Finding(invariant, (fair, f"{why}: {', '.join(left)}")))
