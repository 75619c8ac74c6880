"""A job: one request that the environment sends."""

from dataclasses import dataclass

from kvproof.model.config.limits import within

REVERSE = " reverse"
"""The end of the name of a reverse transfer (D to P) (see `follow_up_turns`)."""


@dataclass(frozen=True)
class Job:
    """One request: a prompt (one character is one token) and the number of output tokens.

    In a cluster with a prefill and a decode engine, the job runs on P first, then on D. `embeds`
    sends the prompt as embeddings instead of token ids. An engine with the policy `priority`
    schedules a job with a lower `priority` first. A job with `parts` is a session: the user sends
    each part after the answer of `max_tokens` tokens to the part before. A job that `follows`
    another is the next turn of that job's conversation (see `follow_up_turns`).
    """

    name: str
    prompt: str
    max_tokens: int = 1
    embeds: bool = False
    priority: int = 0
    parts: tuple[str, ...] = ()
    follows: str = ""

    def __post_init__(self) -> None:
        within(f"the number of prompt tokens of {self.name}", len(self.prompt), 1, "prompt tokens")
        within(f"max_tokens of {self.name}", self.max_tokens, 1, "max_tokens")
        within(f"the priority of {self.name}", self.priority, 0, "priority")
        for part in self.parts:
            within(f"the number of tokens of a part of {self.name}", len(part), 1, "prompt tokens")

    @property
    def conversation(self) -> str:
        """The prompt and its answer. D never computes the KV of the last token."""
        return self.prompt + "." * self.max_tokens

    @property
    def tokens_most(self) -> int:
        """Tokens of all parts of the prompt and all answers."""
        prompts = (self.prompt, *self.parts)
        return sum(map(len, prompts)) + len(prompts) * self.max_tokens
