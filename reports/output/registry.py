"""All outputs of `--json`."""

from kvproof.reports.output.base import OutputPart, Stopped
from kvproof.reports.output.campaign import Campaigned, CampaignsReported
from kvproof.reports.output.connector import ConnectorJudged
from kvproof.reports.output.gate import Gate
from kvproof.reports.output.join import Joined
from kvproof.reports.output.lists import Explained, KindsOfNames, Report
from kvproof.reports.output.proof import Proved
from kvproof.reports.output.releases import Doctor, Releases, ReleasesOfTrace
from kvproof.reports.output.search import Explored, Replayed, Sampled
from kvproof.reports.output.steps_covered import StepsCovered

OUTPUTS: tuple[type[OutputPart], ...] = (
    Explored,
    Sampled,
    StepsCovered,
    Campaigned,
    Proved,
    Replayed,
    Joined,
    Explained,
    KindsOfNames,
    Report,
    CampaignsReported,
    Releases,
    ReleasesOfTrace,
    Gate,
    ConnectorJudged,
    Doctor,
    Stopped,
)
"""The type of each object; `prove`, `releases` and `configs` have two each. Any command may be
stopped."""
