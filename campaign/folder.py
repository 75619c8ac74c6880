"""This module keeps the folder of a campaign: what it knows, as files that are whole at any time.

- `campaign.json`: the settings, and what the merged units gave
- `results.jsonl`: the results of units that are not in it yet, each as soon as it is there
- `findings/`: traces, which `kvproof replay` takes
"""

import contextlib
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

import kvproof
from kvproof.campaign.progress import Progress
from kvproof.campaign.unit import CorpusEntry, UnitResult, packed, result_of
from kvproof.model.errors import UsageError
from kvproof.model.files.decoding import decoded_json
from kvproof.model.files.folders import check_empty, made_folder
from kvproof.model.files.reading import read_bytes, shown
from kvproof.model.files.writing import append, replace
from kvproof.model.traces.trace import Trace, write_in

STATE, RESULTS = "campaign.json", "results.jsonl"

FINDINGS = "findings"

SIZE_MAX_MIB = 2048

VERSION: Final = 2
"""The version of `campaign.json`, the only one that is read. The first had no field for it."""

READS_OLDER = "9e32e107"
"""The commit of kvproof that reads the first version."""


class CampaignSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of a campaign. Only a campaign with the same settings can be continued. `vllm`
    is the release; `given` says how many entries an earlier campaign gave."""

    kvproof: str = kvproof.__version__
    machine: Literal["model", "live"]
    vllm: str | None
    seed: int
    faults: tuple[str, ...] = ()
    given: int = 0


class CampaignState(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `campaign.json`."""

    settings: CampaignSettings
    progress: Progress
    version: Literal[2] = VERSION


class _Start(Struct, frozen=True):
    """The fields that `campaign.json` has in each version."""

    settings: msgspec.Raw
    version: int = 1


class CampaignFolder:
    """Keep the folder of one campaign."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, settings: CampaignSettings) -> Progress:
        """Begin a new campaign. Raises UsageError where the folder has files."""
        check_empty(self.path)
        made_folder(self.path / FINDINGS)
        progress = Progress()
        self.save(settings, progress, {})
        return progress

    def resume(self, settings: CampaignSettings) -> tuple[Progress, dict[int, UnitResult]]:
        """Return what an earlier run knew, and its results that are not merged. Raises UsageError
        where the folder has no campaign, or one with other settings."""
        state = self.state()
        if state.settings != settings:
            other = [
                name
                for name in CampaignSettings.__struct_fields__
                if getattr(state.settings, name) != getattr(settings, name)
            ]
            raise UsageError(
                f"The campaign in {shown(self.path)} has other settings ({', '.join(other)}). "
                "Use the options that it was started with, or a new folder."
            )
        return state.progress, self._results(state.progress.units)

    def state(self) -> CampaignState:
        """Read the settings and the progress. Raises UsageError where they cannot be read."""
        path = self.path / STATE
        if self.path.is_dir() and not path.exists():
            raise UsageError(
                f"The folder {shown(self.path)} has no campaign ({STATE}). Use the folder of a "
                "campaign, or a trace file, such as trace.jsonl."
            )
        text = read_bytes(path, "campaign", SIZE_MAX_MIB)
        what, use = f"The file {shown(path)}", "the folder of a campaign"
        version = decoded_json(text, _Start, what, use).version
        if version != VERSION:
            reads = f"the commit {READS_OLDER} of kvproof" if version < VERSION else "a newer one"
            raise UsageError(
                f"The campaign in {shown(self.path)} was written by another version of kvproof. "
                f"Use a new folder, or {reads}, which reads it."
            )
        return decoded_json(text, CampaignState, what, use)

    def _results(self, merged: int) -> dict[int, UnitResult]:
        """Return the results after those that are merged. A line that was cut off is no result."""
        path = self.path / RESULTS
        found: dict[int, UnitResult] = {}
        if path.exists():
            for line in read_bytes(path, "results", SIZE_MAX_MIB).splitlines():
                with contextlib.suppress(msgspec.MsgspecError):
                    result = result_of(line)
                    if result.number >= merged:
                        found[result.number] = result
        return found

    def note(self, result: bytes) -> None:
        """Write the result of a unit at once."""
        append(self.path / RESULTS, f"\n{result.decode()}\n")

    def save(
        self, settings: CampaignSettings, progress: Progress, waiting: dict[int, UnitResult]
    ) -> None:
        """Write what is known, and keep only results that are not merged in the list."""
        state = msgspec.json.encode(CampaignState(settings, progress), order="sorted")
        replace(self.path / STATE, state)
        replace(self.path / RESULTS, *(packed(each) + b"\n" for each in waiting.values()))

    def write_finding(self, made: Trace) -> Path:
        """Write the trace of a finding."""
        assert made.finding is not None
        return write_in(self.path / FINDINGS, made.finding.invariant, made)


def entries_of(folder: Path) -> list[CorpusEntry]:
    """Return the corpus of a campaign. Raises UsageError where there is none."""
    return CampaignFolder(folder).state().progress.corpus
