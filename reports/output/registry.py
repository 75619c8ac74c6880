"""All outputs of `--json`."""

from kvproof.reports.output.base import OutputPart, Stopped
from kvproof.reports.output.campaign import Campaigned, CampaignsReported
from kvproof.reports.output.connector import ConnectorJudged
from kvproof.reports.output.doctor import Doctor
from kvproof.reports.output.gate import Gate
from kvproof.reports.output.join import Joined
from kvproof.reports.output.lists import Explained, KindsOfNames, Report
from kvproof.reports.output.proof import Proved
from kvproof.reports.output.search import Explored, OnReleases, Replayed, Sampled
from kvproof.reports.output.steps_covered import StepsCovered

OUTPUTS: tuple[type[OutputPart], ...] = (
    Explored,
    Sampled,
    StepsCovered,
    Campaigned,
    Proved,
    Replayed,
    OnReleases,
    Joined,
    Explained,
    KindsOfNames,
    Report,
    CampaignsReported,
    Gate,
    ConnectorJudged,
    Doctor,
    Stopped,
)
"""The type of each object. Any command may be stopped."""
