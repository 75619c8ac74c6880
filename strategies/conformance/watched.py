"""A machine with known findings, checked for all other findings.

Every step is checked against the guards and the invariants (see `run`). A finding that a known
finding explains is counted, and the run continues from the observed state. From then on each block
is assumed to hold what the cache and its requests record for it, and listeners to KV events are
assumed to know what is cached. So the consequences of one wrong block are reported once, and they
hide no later finding.

A finding that was explained at an earlier step and still holds is not judged again. Any other
finding is new, and ends the run. The gate continues after these, too.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

from kvproof.invariants.memory import promised
from kvproof.invariants.registry import CHECKS, gravest
from kvproof.model import memory
from kvproof.model.because import About
from kvproof.model.config import Cluster, Job
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Event
from kvproof.model.finding import Finding, Signature, signature
from kvproof.model.known_finding import KnownFinding, at_work, explaining
from kvproof.model.machine import Machine
from kvproof.model.state import NULL, Engine, State
from kvproof.model.step import Step
from kvproof.strategies.run import Run, Violated


class Watched:
    """A machine together with its known findings; it is a `Machine` too.

    `met` counts, by known finding, the findings that it explains. `alike` has, by check, the known
    finding that a finding looks like whose cause was not at work.
    """

    def __init__(
        self,
        machine: Machine,
        known: Iterable[KnownFinding] = (),
        met: Counter[str] | None = None,
        alike: dict[str, str] | None = None,
    ) -> None:
        self.machine = machine
        self.name = machine.name
        self.known = tuple(known)
        self.met: Counter[str] = Counter() if met is None else met
        self.alike: dict[str, str] = {} if alike is None else alike
        self._tried: dict[tuple[str, Signature], bool] = {}
        self.standing: set[tuple[str, About]] = set()
        self.last: Step | None = None
        self.taken: list[Event] = []

    @property
    def cluster(self) -> Cluster:
        """The cluster being driven."""
        return self.machine.cluster

    @property
    def state(self) -> State:
        """The state of the driven machine."""
        return self.machine.state

    def add_job(self, job: Job) -> None:
        """Add a job to the traffic."""
        self.machine.add_job(job)

    def stimuli(self) -> list[Event]:
        """The events that the environment may send next."""
        return self.machine.stimuli()

    def believe(self, state: State) -> None:
        """Continue from this state."""
        self.machine.believe(state)

    def shown(self) -> Sequence[object]:
        """What the engines of the driven machine answered."""
        return self.machine.shown()

    def close(self) -> None:
        """Close the driven machine."""
        self.machine.close()

    def take(self, event: Event) -> Step:
        """Take one event."""
        step = self.machine.take(event)
        self.taken.append(step.event)
        return step

    def unexplained(self, step: Step, findings: Sequence[Finding]) -> list[Finding]:
        """The findings after a step that end the run. If there are none, the machine continues from
        the observed state."""
        # The end of a run is judged after its last step: what was found there still stands.
        stand = set(self.standing) if step is self.last else set()
        self.last = step
        new = []
        for finding in gravest(findings):
            what = finding.invariant, finding.about
            if what in self.standing or self.goes_on(step, finding):
                stand.add(what)
            else:
                new.append(finding)
        self.standing = stand
        if findings and not new and not any(engine.dead for engine in step.after.engines):
            self.machine.believe(believed(self.cluster, step))
        return new

    def note_excused(self, step: Step, findings: Sequence[Finding]) -> None:
        """Pass on what is excused."""
        self.machine.note_excused(step, findings)

    def goes_on(self, step: Step, finding: Finding) -> bool:
        """Whether the run continues after a finding that did not hold at an earlier step. Counts
        the known findings."""
        by = self.explained_by(step, finding)
        if by:
            self.met[by] += 1
        return bool(by)

    def explained_by(self, step: Step, finding: Finding) -> str:
        """The name of the first known finding that explains a finding, and whose cause was at work;
        empty if none does."""
        for known in explaining(self.known, self.cluster, step, finding):
            if self._at_work(known, signature(self.cluster, step.event, finding)):
                return known.name
            self.alike[finding.invariant] = known.name
        return ""

    def _at_work(self, known: KnownFinding, found: Signature) -> bool:
        """Whether the cause of a known finding was at work, which is tried once for a run where no
        step shows it."""
        if not known.needs:
            return True
        tried, make = self._tried, type(self.machine)
        if (known.name, found) not in tried:
            tried[known.name, found] = at_work(
                [without(self.cluster) for without in known.needs],
                lambda cluster: holds(make, cluster, self.taken, found.check),
            )
        return tried[known.name, found]


def believed(cluster: Cluster, step: Step) -> State:
    """The state after a step, in which each block holds what the cache and its requests record for
    it."""
    engines = tuple(_believed_engine(cluster, step, engine) for engine in step.after.engines)
    return step.after._replace(engines=engines)


def _believed_engine(cluster: Cluster, step: Step, engine: Engine) -> Engine:
    cfg, held = cluster.engine(engine.name), list(engine.memory)
    for (index, prefix), blocks in engine.cached:
        width = memory.width(cfg, cfg.groups[index])
        slots = dict(enumerate(promised(cfg, (index, prefix))))
        if cfg.groups[index].attention and width > cfg.groups[index].block_size:
            slots[width - 1] = prefix
        for block in blocks:
            memory.write(held, block, index, width, slots)
    for read in step.effects.reads:
        if read.engine == engine.name and read.found != read.expected and read.block != NULL:
            width = memory.width(cfg, cfg.groups[read.group])
            memory.write(held, read.block, read.group, width, {read.slot: read.expected})
    engine = engine._replace(memory=tuple(held))
    if engine.reports is None:
        return engine
    mirror = tuple(sorted(key for key, blocks in engine.cached if blocks))
    return engine._replace(ghost=engine.ghost._replace(mirror=mirror))


def holds(make: type[Machine], cluster: Cluster, events: Sequence[Event], check: str) -> bool:
    """Whether a check has something to judge after these events on a cluster, and holds. No engine
    may die there."""
    with suppress(Exception, AdapterDrift):  # there is no such cluster
        machine = make(cluster)  # type: ignore[call-arg]
        try:
            return _holds(Run(machine, [CHECKS[check]]), events, check)
        finally:
            machine.close()
    return False


def _holds(run: Run, events: Sequence[Event], check: str) -> bool:
    """The same for those of the events that are possible when their turn comes."""
    try:
        list(run.follow(events))
    except Violated:
        return False
    return not run.dead and run.tally.judged[check] > 0
