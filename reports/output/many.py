"""The output of `coverage`."""

from kvproof.reports.output.base import Output, OutputPart, VerdictName


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
