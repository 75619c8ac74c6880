"""The output of `report` on the records of a prefill and a decode engine, joined by request."""

from msgspec import UNSET

from kvproof.reports.output.base import Maybe
from kvproof.reports.output.verdict import FindingOutput, VerdictOutput


class Joined(VerdictOutput, frozen=True, kw_only=True, tag="report"):
    """Two records, joined. `requests` is the number of requests that both have. `judged` has how
    often each invariant had something to judge, and `not_judged` why it had nothing. `findings` has
    all of them, the gravest first; the fields of the verdict are about that one."""

    requests: Maybe[int] = UNSET
    judged: Maybe[dict[str, int]] = UNSET
    not_judged: Maybe[dict[str, str]] = UNSET
    findings: Maybe[tuple[FindingOutput, ...]] = UNSET
