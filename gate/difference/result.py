"""The result of a workload on one machine, as plain data that another process can read."""

from msgspec import Struct

from kvproof.gate.difference.course import NOT_TAKEN, Course
from kvproof.gate.difference.judged import Break, Judgement, Key
from kvproof.invariants.registry import CHECKS
from kvproof.model.severity import Severity


class Near(Struct, frozen=True, forbid_unknown_fields=True):
    """The steps of a workload that executed the change of one function: how many, and the number of
    those with each abstract step."""

    steps: int
    kinds: dict[str, int]


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """What a workload did on one machine.

    `reason` says why it could not be run, and `entry` is the missing entry of the contract; then
    the rest is empty. `whole` says that every run came to its end, and that no stimulus was left
    out. `steps` counts events, `hit_tokens` the tokens of admitted requests that were found in the
    cache, and `blocks_held` is the largest number of blocks that were not free. `digest` is equal
    where two machines took the same events with the same choices, and held the same after each;
    `digests` has such a number for the plans with each kind of cache groups.
    `reached` has the changed files, functions and statements that were reached, as `Look` names
    them, where the run was `watched`; then `near` has the steps that executed the change of each
    changed function. `course` is there only where it was asked for.
    """

    name: str
    reason: str = ""
    entry: str = ""
    breaks: tuple[Break, ...] = ()
    whole: bool = False
    steps: int = 0
    hit_tokens: int = 0
    blocks_held: int = 0
    digest: int = 0
    digests: dict[str, int] = {}
    reached: tuple[str, ...] = ()
    watched: bool = False
    near: dict[str, Near] = {}
    course: Course = NOT_TAKEN

    @property
    def keys(self) -> dict[Key, Break]:
        """What broke, by key."""
        return {each.key: each for each in self.breaks}


def result_of(name: str, found: Judgement, reached: tuple[str, ...] = ()) -> Result:
    """The result with what was found in the runs of a workload."""
    return Result(
        name,
        breaks=tuple(found.breaks.values()),
        whole=not found.died and not found.skipped,
        steps=found.steps,
        hit_tokens=found.hit_tokens,
        blocks_held=found.blocks_held,
        digest=found.digest,
        reached=reached,
    )


def severity(found: Break) -> Severity:
    """What a user would notice. A guard without a severity is bookkeeping by itself."""
    if found.severity is not None:
        return found.severity
    check = CHECKS.get(found.signature.check)
    return (check and check.severity) or Severity.BOOKKEEPING
