"""What is asked of a process that drives one vLLM, and what it answers: a line of JSON each."""

from typing import TypeAlias

from msgspec import Struct

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Workload
from kvproof.live.reproducer.choosing import Observed
from kvproof.live.reproducer.running import RanFile
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.reports.gate_output import GateLost


class _Message(Struct, frozen=True, tag=True, tag_field="type", forbid_unknown_fields=True):
    """A request or an answer."""


class Look(_Message, frozen=True):
    """What of this vLLM can be driven? `places` says what the requests to come reach with each line
    of the changed files: by file and line, keys. They count in the first request of a process, as
    it imports vLLM then."""

    places: dict[str, dict[int, tuple[str, ...]]] = {}


class Drive(_Message, frozen=True):
    """Drive a workload, in a fresh process. With `reach`, also say what it reaches. Without
    `judge`, no check is asked: that is a quick look at the functions. With `excused`, also give the
    breaks that have excuses."""

    workload: Workload
    reach: bool = False
    judge: bool = True
    excused: bool = False


class RecordRun(_Message, frozen=True, tag="Record"):
    """Take the run of this break again, and write it with its states, as a trace, to a new file
    `stem.jsonl` in a folder."""

    found: Break
    folder: str
    stem: str


class AskAccepts(_Message, frozen=True):
    """Which cache groups does a connector accept? It is made with each kind of them."""

    connector: str


class OfFile(_Message, frozen=True):
    """Run a generated file: with pytest if it is `tested`, else its statements, and say what is
    seen after each."""

    path: str
    tested: bool = False


InFork: TypeAlias = Drive | RecordRun | AskAccepts | OfFile
Request: TypeAlias = Look | InFork


class KitConnector(Struct, frozen=True, forbid_unknown_fields=True):
    """A connector that the kit knows: its name in the kit's table, and the files and folders of its
    code, relative to the package."""

    name: str
    home: tuple[str, ...] = ()

    def near(self, file: str) -> int:
        """How near a file is to the code of this connector: 0 where it is none of it, else the
        length of the most special path of `home` that has it."""
        return max(
            (len(each) for each in self.home if f"{file}/".startswith(f"{each}/")), default=0
        )


class Seen(_Message, frozen=True):
    """What can be driven. `failure` says why nothing can, else it is empty; `missing` are the
    features that cannot, each with the first entry of the contract that it lacks; `lacks` is the
    module without which vLLM cannot be imported, where one is missing. `connectors` are those that
    the kit knows. `unwatched` are changed files in which no call could be put, and why: what runs
    reach of these is not known."""

    failure: str
    missing: tuple[GateLost, ...]
    connectors: tuple[KitConnector, ...] = ()
    lacks: str = ""
    unwatched: tuple[str, ...] = ()


class Driven(_Message, frozen=True):
    """The result of a workload."""

    result: Result


class Accepts(_Message, frozen=True):
    """The plans without actions with whose cache groups a connector can be made, and those with
    which making it is `failing` by mistake. `reason` says why there is no such connector."""

    plans: tuple[ConnectorPlan, ...] = ()
    failing: tuple[ConnectorPlan, ...] = ()
    reason: str = ""


class Recorded(_Message, frozen=True):
    """A written trace: its path, and its events in words. Both are empty where the break did not
    show again; `error` is there where the file could not be written."""

    path: str = ""
    events: tuple[str, ...] = ()
    error: str = ""


class OfFileDone(_Message, frozen=True):
    """What came of a generated file."""

    observed: Observed = Observed()
    tested: RanFile = RanFile("cannot run")


Answer: TypeAlias = Seen | Driven | Recorded | Accepts | OfFileDone


def failed(request: InFork, why: str) -> Answer:
    """The answer to a request that could not be carried out."""
    if isinstance(request, RecordRun):
        return Recorded(error=why)
    if isinstance(request, AskAccepts):
        return Accepts(reason=why)
    if isinstance(request, OfFile):
        return OfFileDone(Observed(error=why), RanFile("cannot run", why))
    return Driven(Result(request.workload.name, reason=why))
