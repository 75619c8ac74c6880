"""The survey of a release as declared types: one object of JSON, which is whole or no survey."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from kvproof.model.errors import UsageError
from kvproof.model.files.decoding import decoded_json


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record: no field is unknown."""


class EarlierBreak(_Record, frozen=True):
    """An invariant that broke at an earlier event of a run, and the known deviation that explains
    it."""

    invariant: str
    by: str


class BrokenRecord(_Record, frozen=True):
    """An invariant that did not hold: after which kind of event, in which kind of cache group, and
    for a death the exception and the function.

    `by` is the known deviation that explains it, or empty. `own` says that it is what the followed
    trace was made to show. `stray` says that the run has a stray report. `runs` is the number of
    runs with it, `after` what broke before it in the kept run, `events` the length of this run, and
    `trace` its file.
    """

    invariant: str
    event: str
    feature: str
    by: str
    death: str
    own: bool
    stray: bool
    reasons: list[str]
    runs: int
    after: list[EarlierBreak]
    events: int
    trace: str

    def __post_init__(self) -> None:
        if not self.reasons:
            raise ValueError("a broken invariant has no reasons")


class SurveyRecord(_Record, frozen=True):
    """A cluster that was sampled or a trace that was followed: what was found, or the reason why it
    could not be driven. Of the `events` of a trace, `skipped` were not possible. `departed` is
    the first request that was served in another way than on the way to the place where the fault
    acts, or empty."""

    kind: Literal["sampled", "followed"]
    name: str
    cluster: str
    reason: str | UnsetType = UNSET
    runs: int | UnsetType = UNSET
    steps: int | UnsetType = UNSET
    died: int | UnsetType = UNSET
    death: str | UnsetType = UNSET
    skipped: int | UnsetType = UNSET
    broken: list[BrokenRecord] | UnsetType = UNSET
    without: list[str] | UnsetType = UNSET
    invariant: str | UnsetType = UNSET
    shown: bool | UnsetType = UNSET
    events: int | UnsetType = UNSET
    departed: str | UnsetType = UNSET
    fault: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        counted = (self.runs, self.steps, self.died, self.death, self.skipped, self.broken)
        if any((part is UNSET) == (self.reason is UNSET) for part in counted):
            raise ValueError("a record has either counts or a reason")
        about = (self.invariant, self.shown, self.events, self.departed)
        if any((part is UNSET) == (self.kind == "followed") for part in about):
            raise ValueError("a record has an invariant if a trace was followed")


class Survey(_Record, frozen=True):
    """A survey: the release, and what was found on it."""

    vllm: str
    records: list[SurveyRecord]


def decoded(text: str, version: str) -> list[dict[str, Any]] | None:
    """The records of a whole survey of this release as plain data; None for anything else."""
    try:
        survey = decoded_json(text, Survey, "the survey", "another")
    except UsageError:
        return None
    return msgspec.to_builtins(survey.records) if survey.vllm == version else None
