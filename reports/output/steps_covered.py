"""The output of `sample --steps-covered`."""

from kvproof.reports.output.base import Output, VerdictName
from kvproof.strategies.sampling.exercised import Exercised


class StepsCovered(Output, frozen=True, kw_only=True, tag="sample"):
    """The abstract steps that real vLLM took. `unknown` has the reasons why episodes could not be
    run. `seconds` is wall time without the import of vLLM, which
    took `import_s`."""

    verdict: VerdictName
    seed: int
    seconds: float
    import_s: float
    episodes: int
    unknown: tuple[str, ...]
    steps: tuple[Exercised, ...]
