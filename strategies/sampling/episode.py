"""One episode: a Hypothesis state machine that chooses jobs and events for any machine.

At its end two prompts may begin as an earlier one did, one after the other. Whether the right
blocks were stored shows only in a prompt that comes later. The first prompt shows vLLM where the
prompts diverge, and the second one must hit the blocks that were stored there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, filterfalse
from sys import exception
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from kvproof.invariants.check import Check
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
from kvproof.model.machine import Machine, MakeMachine
from kvproof.model.presets.room import has_room
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.workloads import jobs, longest_prompt, prompt_lengths

JOBS_MAX = 6
"""The largest number of jobs of one episode."""

CHOICES_MAX = 64
"""The number of events among which one choice is made. Above 100, Hypothesis adds constants from
the modules that happen to be imported, and one seed would no longer give one trace."""

FINISH, SUBMIT, DISTURB = "finish", "submit", "disturb"
"""Kinds of events beside those of `OFFERED`: all requests so far are driven to their end before
others arrive, which is the simplest choice, so a failure that needs draining shrinks well; a new
job arrives; an abort, an eviction or another stimulus comes that a run does not need."""

OFFERED: dict[str, tuple[type[Event], ...]] = {
    "work": (Schedule, Complete),
    "move on": (Submit, Continue, TransferDone),
    "break": (TransferFail, TransferLost),
}
"""Kinds of events that the machine offers: an engine schedules a step, and its output arrives; a
job or the next part of a session arrives, D receives what P offers, or a read by D ends; a read
fails or is lost, which is chosen as often as a disturbance."""

KINDS = (FINISH, *OFFERED, SUBMIT, DISTURB)


LENGTHS = 6
"""The length of a prompt is chosen among this number of possible lengths after the point where the
prompts diverge, beginning with the shortest."""

Chosen: TypeAlias = tuple[int, int, tuple[int, int]]
"""The earlier prompt, the length up to which it is taken, and the lengths of the two prompts. Each
is an index into a list that is known only at the end of the episode."""

NUMBERS = st.integers(0, 63)


def siblings() -> st.SearchStrategy[Chosen | None]:
    """Draw the choices for the end of an episode; None in half of all episodes with room."""
    return st.none() | st.tuples(NUMBERS, NUMBERS, st.tuples(NUMBERS, NUMBERS))


def come(run: Run, chosen: Chosen, eventually: str | None) -> None:
    """Submit the two prompts one after the other, and drain the run after each. Raises Violated."""
    cluster = run.machine.cluster
    earlier = [job for job in cluster.jobs if not (job.follows or job.parts or job.embeds)]
    lengths = prompt_lengths(cluster.engines, longest_prompt(cluster.engines, 1))
    if not earlier or not lengths:
        return
    which, parting, ends = chosen
    first = earlier[which % len(earlier)]
    shared = [n for n in lengths if n <= len(first.prompt)]
    begin = first.prompt[: shared[parting % len(shared)]]
    for name, letter, end in zip(("s0", "s1"), "yz", ends, strict=True):
        longer = [n for n in lengths if n >= len(begin)][:LENGTHS]
        rest = letter * (longer[end % len(longer)] - len(begin))
        run.add_jobs([replace(first, name=name, prompt=begin + rest, max_tokens=1)])
        submit = Submit(cluster.prefill.name, name)
        if run.dead or submit not in run.stimuli:
            return
        run.take(submit)
        drain(run, eventually)


@dataclass(frozen=True)
class Target:
    """The subject of an episode. With `use_jobs` the traffic of every episode is the jobs of
    the cluster; otherwise this is so in half of the episodes, and the other half generates
    random jobs. Without `invariants`, all checks are asked. `ended` is called with each
    complete run, and `failed` for each run that breaks an invariant."""

    cluster: Cluster
    make_machine: MakeMachine
    invariants: tuple[Check, ...] | None = None
    use_jobs: bool = False
    ended: Callable[[Run], None] = lambda _run: None
    failed: Callable[[Violated], None] = lambda _violated: None

    @property
    def eventually(self) -> str | None:
        """The id of the `eventually` invariant; None if it is not checked."""
        asked = CHECKS.values() if self.invariants is None else self.invariants
        return next((i.id for i in asked if i.kind == "eventually"), None)

    @property
    def traffic(self) -> list[bool]:
        """Whether an episode may use the jobs of the cluster. Generating random jobs is the simpler
        choice for Hypothesis."""
        return [True] if self.use_jobs else [False, True] if self.cluster.jobs else [False]

    def machine(self) -> Machine:
        """A fresh machine without traffic."""
        return self.make_machine(self.cluster.carrying())


class CacheMachine(RuleBasedStateMachine):
    """One episode. Each choice takes one of the events that the machine offers, of a kind that is
    chosen first. An episode leaves some kinds out as long as others are possible (swarm testing).
    Every step is checked. At the end the machine is driven until all requests have finished. Where
    there is room, two more prompts may come then (see `siblings`)."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.run = Run(target.machine(), target.invariants)
        self.given = target.use_jobs
        self.left_out: set[str] = set()
        self.siblings: Chosen | None = None
        self.outside = exception()

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Choose the traffic, which is the jobs of the cluster or random jobs, the kinds of events
        to leave out, and the end."""
        self.given = data.draw(st.sampled_from(self.target.traffic))
        share = data.draw(st.integers(0, 9))
        self.left_out = {kind for kind in KINDS if data.draw(st.integers(1, 10)) <= share}
        if not self.target.use_jobs and has_room(self.target.cluster):
            self.siblings = data.draw(siblings())
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
        """Whether no event is possible any more."""
        return not self.run.stimuli and not self.may_submit

    @property
    def unfinished(self) -> bool:
        """Whether some request has not finished."""
        return not termination.over(self.run.machine.state)

    @property
    def disturbances(self) -> list[Event]:
        """The disturbances: aborts, evictions and other stimuli that a run does not need."""
        others = tuple(chain.from_iterable(OFFERED.values()))
        return list(filterfalse(lambda e: isinstance(e, others), self.run.stimuli))[:CHOICES_MAX]

    @property
    def possible(self) -> dict[str, list[Event]]:
        """The kinds of events that can happen now, with their events, simplest first. A new job is
        chosen later. One kind is always possible: a Hypothesis machine must have a choice."""
        may_finish = self.idle or (self.may_submit and self.unfinished)
        return {
            **({FINISH: []} if may_finish else {}),
            **{kind: events for kind, of in OFFERED.items() if (events := self.offered(*of))},
            **({SUBMIT: []} if self.may_submit else {}),
            **({DISTURB: self.disturbances} if self.disturbances else {}),
        }

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """Take one event."""
        possible = self.possible
        kinds = [kind for kind in possible if kind not in self.left_out] or list(possible)
        kind = data.draw(st.sampled_from(kinds))
        if kind == FINISH:
            drain(self.run, self.target.eventually)
        elif kind == SUBMIT:
            self.submit(data)
        else:
            events = possible[kind]
            if kind == DISTURB:  # each kind of disturbance with equal probability
                chosen = data.draw(st.sampled_from(list(dict.fromkeys(map(type, events)))))
                events = self.offered(chosen)
            self.run.take(data.draw(st.sampled_from(events)))

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

    def teardown(self) -> None:
        """Drain the run, unless it has failed or Hypothesis has abandoned it."""
        try:
            if exception() is self.outside:
                drain(self.run, self.target.eventually)
                if self.siblings is not None:
                    come(self.run, self.siblings, self.target.eventually)
                self.target.ended(self.run)
            elif isinstance(violated := exception(), Violated):
                self.target.failed(violated)
        except Violated as violated:
            self.target.failed(violated)
            raise
        finally:
            self.run.machine.close()
