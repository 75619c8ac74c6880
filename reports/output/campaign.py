"""The outputs of `campaign`, and of `report` on campaigns."""

from typing import Literal

from kvproof.reports.output.base import Output, OutputPart, VerdictName
from kvproof.reports.output.verdict import FaultName, SignatureObject


class CampaignFinding(OutputPart, frozen=True, kw_only=True):
    """A finding of a campaign, with the number of steps after which it was found. `trace` is its
    file in the folder of the campaign."""

    signature: SignatureObject
    severity: str | None
    reasons: tuple[str, ...]
    after_steps: int
    trace_length: int
    trace: str


class EstimatedUnseen(OutputPart, frozen=True, kw_only=True):
    """An estimate of what was not seen, from fresh units (see the page of campaigns). `seen` by
    fresh units and `by_followed_runs` alone; `in_next_unit` new ones in the next fresh unit, and
    `unseen_at_least` that are left."""

    seen: int
    by_followed_runs: int
    in_next_unit: float
    unseen_at_least: float


class CampaignFigures(OutputPart, frozen=True, kw_only=True):
    """What a campaign has seen. `plan_units` have plans of connectors and engine cores, and
    `unseen` has what plans showed as "plans". `known` counts the known findings of vLLM.
    `undriven` says which clusters and plans this vLLM cannot be driven with, and `errors` why units
    did not end, each with the first unit."""

    machine: Literal["model", "live"]
    vllm: str | None
    seed: int
    faults: tuple[FaultName, ...]
    units: int
    fresh_units: int
    plan_units: int
    runs: int
    steps: int
    corpus: int
    abstract_steps: int
    pairs: int
    unseen: dict[str, EstimatedUnseen]
    findings: tuple[CampaignFinding, ...]
    known: dict[str, int]
    undriven: dict[str, int]
    errors: dict[str, int]


class Campaigned(Output, frozen=True, kw_only=True, tag="campaign"):
    """A campaign. `reason` says why the verdict is UNKNOWN, or is empty. `lost_workers` counts the
    workers that ended with a unit, which was given out again."""

    verdict: VerdictName
    reason: str
    seconds: float
    folder: str
    workers: int
    lost_workers: int
    figures: CampaignFigures


class CampaignsReported(Output, frozen=True, kw_only=True, tag="report"):
    """One campaign, or two side by side."""

    campaigns: tuple[CampaignFigures, ...]
