"""The end of an episode: two prompts that begin as an earlier one did, one after the other.

Whether the right blocks were stored shows only in a prompt that comes later. The first prompt shows
vLLM where the prompts diverge, and the second one must hit the blocks that were stored there.
"""

from typing import TypeAlias

from hypothesis import strategies as st
from msgspec.structs import replace

from kvproof.model.events import Submit
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run
from kvproof.strategies.sampling.workloads import longest_prompt, prompt_lengths

LENGTHS = 6
"""The length of a prompt is chosen among this number of possible lengths after the point where the
prompts diverge, beginning with the shortest."""

Chosen: TypeAlias = tuple[int, int, tuple[int, int]]
"""The earlier prompt, the length up to which it is taken, and the lengths of the two prompts. Each
is an index into a list that is known only at the end of the episode."""

NUMBERS = st.integers(0, 63)


def siblings() -> st.SearchStrategy[Chosen | None]:
    """Draw the choices for the end of an episode; None in half of all episodes with room."""
    return st.none() | st.tuples(NUMBERS, NUMBERS, st.tuples(NUMBERS, NUMBERS))


def come(run: Run, chosen: Chosen, eventually: str | None) -> None:
    """Submit the two prompts one after the other, and drain the run after each. Raises Violated."""
    cluster = run.machine.cluster
    earlier = [job for job in cluster.jobs if not (job.follows or job.parts or job.embeds)]
    lengths = prompt_lengths(cluster.engines, longest_prompt(cluster.engines, 1))
    if not earlier or not lengths:
        return
    which, parting, ends = chosen
    first = earlier[which % len(earlier)]
    shared = [n for n in lengths if n <= len(first.prompt)]
    begin = first.prompt[: shared[parting % len(shared)]]
    for name, letter, end in zip(("s0", "s1"), "yz", ends, strict=True):
        longer = [n for n in lengths if n >= len(begin)][:LENGTHS]
        rest = letter * (longer[end % len(longer)] - len(begin))
        run.add_jobs([replace(first, name=name, prompt=begin + rest, max_tokens=1)])
        submit = Submit(cluster.prefill.name, name)
        if run.dead or submit not in run.stimuli:
            return
        run.take(submit)
        drain(run, eventually)
