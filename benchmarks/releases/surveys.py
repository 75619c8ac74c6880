"""Surveys of releases of vLLM, each in its own process, kept in the cache folder."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.releases.rows import SurveyedRelease
from kvproof.cli.own_code import fingerprint
from kvproof.live import children
from kvproof.live.known import traces
from kvproof.live.releases import Cache, Failed
from kvproof.live.trees import environment, named
from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.files.folders import appear, part_of
from kvproof.model.files.reading import read_text
from kvproof.model.files.writing import errors
from kvproof.model.traces import trace
from kvproof.model.traces.trace import Trace
from kvproof.strategies.witnesses import witnesses

ROOT = Path(__file__).parent.parent.parent
"""The clone of kvproof, from which a survey is started."""

SURVEY_S = 900.0
"""Time limit of a survey, in seconds."""


class Surveys:
    """The surveys in a cache folder. Raises UsageError if the folder cannot be created."""

    def __init__(self, folder: Path) -> None:
        self.releases = Cache(folder)
        self.folder = self.releases.made("surveys")
        self.lock = threading.Lock()

    def witnesses(self) -> Path:
        """The runs that every survey replays, as traces. They are made once for this kvproof."""
        folder = self.folder / f"witnesses-{fingerprint()}"
        with self.lock:
            if not folder.exists():
                with part_of(folder) as part:
                    self._write_witnesses(part)
                    appear(part, folder)
        return folder

    def _write_witnesses(self, folder: Path) -> None:
        """Files `NUMBER-FAULT.jsonl`: the runs of the model, then the traces of the findings."""
        runs = [
            (fault.name, Trace(cluster, events, None, finding, (fault.name,)))
            for fault, cluster, events, finding in witnesses(FAULTS.values())
        ]
        recorded = [
            (name, replace(run, changes=None)) for name, run in traces.all_of() if name in FAULTS
        ]
        for index, (name, run) in enumerate((*runs, *recorded)):
            trace.write(folder / f"{index:03}-{name}.jsonl", run)

    def survey(self, version: str, seed: int, episodes: int) -> SurveyedRelease:
        """The survey of a release, from the cache if it is complete there."""
        stem = f"{version}-{fingerprint()}-{seed}-{episodes}"
        kept = self.folder / f"{stem}.json"
        records = whole(kept, version)
        if records is None:
            options = ["--seed", str(seed), "--episodes", str(episodes)]
            try:
                self.releases.installed(version)
                options += ["--witnesses", str(self.witnesses())]
                records = self._run(version, kept, options)
            except Failed as failed:
                return SurveyedRelease(version, reason=str(failed))
        return SurveyedRelease(version, tuple(records))

    def _environment(self, version: str) -> Mapping[str, str]:
        """The environment of a process that imports a release, installed if missing. Raises
        Failed."""
        self.releases.installed(version)
        try:
            tree = named(version, self.releases.folder)
        except UsageError as error:
            raise Failed(str(error)) from error
        return environment(tree, (self.releases.needed(), ROOT))

    def _run(self, version: str, out: Path, options: Sequence[str]) -> list[dict[str, Any]]:
        """Run a survey in its own process. Raises Failed."""
        env = self._environment(version)
        with part_of(out) as part:
            written, traces = part / "survey.json", part / "traces"
            _in_its_own_process(env, [str(written), "--traces", str(traces), *options])
            records = whole(written, version)
            if records is None:
                raise Failed("its survey is not whole")
            if traces.exists():
                shutil.rmtree(out.with_suffix(""), ignore_errors=True)
                appear(traces, out.with_suffix(""))
            with errors(out):
                written.replace(out)  # last, so that a survey is there with its traces
        return records


def _in_its_own_process(env: Mapping[str, str], arguments: Sequence[str]) -> None:
    """Run a survey in this environment. Raises Failed."""
    command = [sys.executable, "-m", "benchmarks.releases.survey", *arguments]
    try:
        ran = children.run(command, env=env, timeout_s=SURVEY_S)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"its survey takes more than {SURVEY_S:.0f} s") from error
    if ran.returncode != 0:
        raise Failed((ran.stderr.strip() or f"exit code {ran.returncode}").splitlines()[-1])


def whole(path: Path, version: str) -> list[dict[str, Any]] | None:
    """The records of a survey of this release; None if the file is missing, incomplete or
    damaged."""
    try:
        survey = json.loads(read_text(path, "survey"))
    except (UsageError, ValueError):
        return None
    if not isinstance(survey, dict) or survey.get("vllm") != version:
        return None
    records = survey.get("records")
    return records if isinstance(records, list) else None
