"""The outputs of the commands that run many searches: `matrix` and `coverage`."""

from msgspec import UNSET

from kvproof.reports.output.base import Maybe, Output, OutputPart, VerdictName


class EngineResult(OutputPart, frozen=True, kw_only=True):
    """What one engine found about a fault."""

    verdict: VerdictName
    invariant: str | None
    trace_length: int
    seconds: float


class MatrixRow(OutputPart, frozen=True, kw_only=True):
    """A fault (or "(no fault)"), the cluster in which it was searched, and the engines."""

    name: str
    config: str
    explore: EngineResult
    sample: EngineResult
    prove: EngineResult


class Matrix(Output, frozen=True, kw_only=True, tag="matrix"):
    """Which engine finds which fault. `reason` is there if the command was interrupted."""

    verdict: VerdictName
    seed: int
    seconds: float
    faults: tuple[MatrixRow, ...]
    reason: Maybe[str] = UNSET


class AbstractStep(OutputPart, frozen=True, kw_only=True):
    """An abstract step, and the number of times the model and the machine took it."""

    step: str
    model: int
    machine: int


class ExecutedLines(OutputPart, frozen=True, kw_only=True):
    """The statements of a module of vLLM, and how many of them were executed."""

    module: str
    statements: int
    executed: int


class Coverage(Output, frozen=True, kw_only=True, tag="coverage"):
    """The abstract steps that real vLLM took. `unknown` has the reasons why episodes could not be
    run. `lines` is empty without --lines. `seconds` is wall time without the import of vLLM, which
    took `import_s`."""

    verdict: VerdictName
    seed: int
    seconds: float
    import_s: float
    episodes: int
    unknown: tuple[str, ...]
    steps: tuple[AbstractStep, ...]
    lines: tuple[ExecutedLines, ...]
