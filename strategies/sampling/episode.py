"""One episode: a Hypothesis state machine that chooses jobs and events for any machine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import filterfalse
from sys import exception

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.registry import CHECKS
from kvproof.model import termination
from kvproof.model.config import Cluster
from kvproof.model.environment import arrivals
from kvproof.model.events import (
    Complete,
    Continue,
    Event,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
    TransferLost,
)
from kvproof.model.machine import Machine
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.workloads import jobs

MakeMachine = Callable[[Cluster], Machine]
"""Makes a fresh machine for a cluster."""

JOBS_MAX = 6
"""Jobs of one episode."""

CHOICES_MAX = 64
"""The number of events among which one choice is made. Above 100, Hypothesis adds constants from
the modules that happen to be imported, and one seed would no longer give one trace."""

WORK = (Schedule, Complete)
MOVE_ON = (Submit, Continue, TransferDone)
BREAK = (TransferFail, TransferLost)


@dataclass(frozen=True)
class Target:
    """The subject of an episode. With `use_jobs` the traffic of every episode is the jobs of the
    cluster; otherwise this is so in half of the episodes, and the other half generates random jobs.
    `ended` is called with each complete run, and `failed` for each run that breaks an invariant."""

    cluster: Cluster
    make_machine: MakeMachine
    invariants: tuple[Invariant, ...] = field(default_factory=lambda: tuple(CHECKS.values()))
    use_jobs: bool = False
    ended: Callable[[Run], None] = lambda _run: None
    failed: Callable[[Violated], None] = lambda _violated: None

    @property
    def eventually(self) -> str | None:
        """The id of the `eventually` invariant; None if it is not checked."""
        return next((i.id for i in self.invariants if i.kind == "eventually"), None)

    @property
    def traffic(self) -> list[bool]:
        """Whether an episode may use the jobs of the cluster. Generating random jobs is the simpler
        choice for Hypothesis."""
        return [True] if self.use_jobs else [False, True] if self.cluster.jobs else [False]

    def machine(self) -> Machine:
        """A fresh machine without traffic."""
        return self.make_machine(self.cluster.carrying())


class CacheMachine(RuleBasedStateMachine):
    """One episode. Its rules choose among the events that the machine offers. Every step is
    checked. At the end the machine is driven until all requests have finished."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.run = Run(target.machine(), target.invariants)
        self.given = target.use_jobs
        self.outside = exception()

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Choose the traffic: the jobs of the cluster, or random jobs."""
        self.given = data.draw(st.sampled_from(self.target.traffic))
        if self.given:
            self.run.add_jobs(self.target.cluster.jobs)

    @property
    def may_submit(self) -> bool:
        """Whether one more random job may be added; not while the output of a step is the only
        possible event."""
        cluster, stimuli = self.run.machine.cluster, self.run.stimuli
        output = bool(stimuli) and all(isinstance(e, Complete) for e in stimuli)
        free = not output and not self.run.dead
        return not self.given and free and len(cluster.jobs) < JOBS_MAX

    def offered(self, *kinds: type) -> list[Event]:
        """The stimuli of these kinds, simplest first."""
        return [e for e in self.run.stimuli if isinstance(e, kinds)][:CHOICES_MAX]

    @property
    def idle(self) -> bool:
        """Whether nothing can happen any more."""
        return not self.run.stimuli and not self.may_submit

    @property
    def unfinished(self) -> bool:
        """Whether some request has not finished."""
        return not termination.over(self.run.machine.state)

    @property
    def disturbances(self) -> list[Event]:
        """The disturbances: aborts, evictions and other stimuli that a run does not need."""
        others = (*WORK, *MOVE_ON, *BREAK)
        return list(filterfalse(lambda e: isinstance(e, others), self.run.stimuli))[:CHOICES_MAX]

    @precondition(lambda self: self.may_submit)
    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        """A new job arrives."""
        machine = self.run.machine
        kept = machine.cluster.jobs
        continues: bool = data.draw(st.booleans()) if kept else False
        texts = [job.conversation for job in kept] if continues else []
        earlier = list(dict.fromkeys([*(job.prompt for job in kept), *texts]))
        answered = arrivals.open_for_more(machine.cluster, machine.state)
        name = f"r{len(machine.cluster.jobs)}"
        live = machine.name == "live"
        job = data.draw(jobs(machine.cluster, name, earlier, answered=answered, live=live))
        self.run.add_jobs([job])
        self.run.take(Submit(machine.cluster.prefill.name, job.name))

    @precondition(lambda self: self.offered(*WORK))
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """An engine schedules a step, and its output arrives."""
        self.run.take(data.draw(st.sampled_from(self.offered(*WORK))))

    @precondition(lambda self: self.offered(*MOVE_ON))
    @rule(data=st.data())
    def move_on(self, data: st.DataObject) -> None:
        """A job or the next part of a session arrives, D receives what P offers, or a read by D
        ends."""
        self.run.take(data.draw(st.sampled_from(self.offered(*MOVE_ON))))

    @precondition(lambda self: self.offered(*BREAK))
    @rule(data=st.data())
    def break_transfer(self, data: st.DataObject) -> None:
        """A read fails or is lost. This is a separate rule, so that it is chosen as often as
        `disturb`."""
        self.run.take(data.draw(st.sampled_from(self.offered(*BREAK))))

    @precondition(lambda self: self.disturbances)
    @rule(data=st.data())
    def disturb(self, data: st.DataObject) -> None:
        """A disturbance happens: an abort, an eviction or another kind, each kind with equal
        probability."""
        kinds = dict.fromkeys(type(event) for event in self.disturbances)
        kind = data.draw(st.sampled_from(list(kinds)))
        self.run.take(data.draw(st.sampled_from(self.offered(kind))))

    @precondition(lambda self: self.idle or (self.may_submit and self.unfinished))
    @rule()
    def finish(self) -> None:
        """Drive all requests so far to their end, before others arrive. This rule has no argument,
        so Hypothesis treats it as the simplest, and a failure that needs draining shrinks well. The
        rule is also possible when no event is: a Hypothesis machine must always have a rule to
        choose."""
        drain(self.run, self.target.eventually)

    def teardown(self) -> None:
        """Drain the run, unless it has failed or Hypothesis has abandoned it."""
        try:
            if exception() is self.outside:
                drain(self.run, self.target.eventually)
                self.target.ended(self.run)
            elif isinstance(violated := exception(), Violated):
                self.target.failed(violated)
        except Violated as violated:
            self.target.failed(violated)
            raise
        finally:
            self.run.machine.close()
