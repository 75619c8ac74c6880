"""The output of `connector`."""

from typing import Any, Literal

from msgspec import UNSET

from kvproof.reports.output.base import Maybe, Output, OutputPart


class BrokenRule(OutputPart, frozen=True, kw_only=True):
    """A rule of the contract that does not hold, and the reasons. `known` is the name of the known
    finding that explains it; `looks_like` that of one whose cause was not seen to be at work, so
    that this is new. Each is left out where there is none."""

    rule: str
    severity: str
    reasons: tuple[str, ...]
    known: Maybe[str] = UNSET
    looks_like: Maybe[str] = UNSET


class ConnectorJudged(Output, frozen=True, kw_only=True, tag="connector"):
    """Random episodes of a connector. `tries` are further ones that made the plan smaller. `judged`
    counts the slots that were compared, `tolerated` the episodes whose gravest finding is less
    severe than a leak, and `known` those that show a known finding of vLLM, by its name. `plan` is
    the smallest episode known that breaks a check, `at` the number of the action that breaks it,
    and `plan_file` the file that has the plan; they are there if the verdict is VIOLATED.
    `needs_earlier_episodes` says whether the plan breaks its check only after what earlier episodes
    left in the process."""

    verdict: Literal["SAMPLED", "VIOLATED", "UNKNOWN"]
    connector: str
    seed: int
    episodes: int
    tries: int
    steps: int
    judged: dict[str, int]
    tolerated: dict[str, int]
    known: dict[str, int]
    findings: Maybe[tuple[BrokenRule, ...]] = UNSET
    plan: Maybe[dict[str, Any]] = UNSET
    at: Maybe[int] = UNSET
    needs_earlier_episodes: Maybe[bool] = UNSET
    plan_file: Maybe[str | None] = UNSET
