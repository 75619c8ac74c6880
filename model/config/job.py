"""A job: one request that the environment sends."""

from typing import Annotated

from msgspec import Meta, Struct

from kvproof.model.config.extra_keys import ExtraKey, written
from kvproof.model.config.limits import Name, Prompt, check_declared, refusal
from kvproof.model.errors import NotValid

REVERSE = " reverse"
"""The end of the name of a reverse transfer (D to P) (see `follow_up_turns`)."""

DRAFT = "?"
"""A draft token that is not accepted yet. An accepted one becomes `SAMPLED`. No prompt has it."""


class Job(Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """One request.

    `prompt` is text, and each character is one token. `max_tokens` is the number of output tokens.

    In a cluster with a prefill and a decode engine, the job runs on P first, then on D. `embeds`
    sends the prompt as embeddings instead of token ids. An engine with the policy `priority`
    schedules a job with a lower `priority` first. A job with `parts` is a session: the user sends
    each part after the answer of `max_tokens` tokens to the part before. A job that `follows`
    another is the next turn of that job's conversation (see `follow_up_turns`). A job with an
    `extra_key` shares no block with jobs that have another (see `extra_keys`). With `reports_hits`,
    an engine with KV events says of the blocks that the job hits that they are stored, once more
    (vLLM's `kv_cache_report_mode` is "full"; the reference does not). If it `stops`, the model ends
    the answer with the token of this number, which its engine does not know before; a session does
    not.
    """

    name: Name
    prompt: Prompt
    max_tokens: Annotated[int, Meta(ge=1, le=512)] = 1
    embeds: bool = False
    priority: Annotated[int, Meta(ge=0, le=1_000)] = 0
    parts: Annotated[tuple[Prompt, ...], Meta(max_length=10)] = ()
    follows: Annotated[str, Meta(max_length=64)] = ""
    extra_key: ExtraKey = ""
    reports_hits: bool = False
    stops: Annotated[int, Meta(ge=0, le=512)] = 0

    def __post_init__(self) -> None:
        check_declared(self, "job")
        if self.name.endswith(REVERSE):
            raise refusal(self, "job", "name", f"a name that does not end with {REVERSE!r}")
        if self.stops and self.parts:
            raise refusal(self, "job", "stops", "0, as the job has parts")
        if any(DRAFT in text for text in (self.prompt, *self.parts)):
            raise NotValid(
                f"A prompt of job {self.name} has the token {DRAFT!r}, which stands for a draft "
                "that is not accepted. Use another character.",
                "prompt" if DRAFT in self.prompt else "parts",
            )

    @property
    def keyed_prompt(self) -> str:
        """The prompt in the letters of its extra key. Embedded tokens are capitals."""
        return written(self.prompt.upper() if self.embeds else self.prompt, self.extra_key)

    @property
    def keyed_parts(self) -> tuple[str, ...]:
        """The parts of a session after the first, in the letters of its extra key."""
        return tuple(written(part, self.extra_key) for part in self.parts)

    @property
    def conversation(self) -> str:
        """The prompt and its answer. D never computes the KV of the last token."""
        return self.prompt + "." * min(self.stops or self.max_tokens, self.max_tokens)

    @property
    def tokens_most(self) -> int:
        """The largest number of tokens that the job can have: all parts of the prompt and all
        answers."""
        prompts = (self.prompt, *self.parts)
        return sum(map(len, prompts)) + len(prompts) * self.max_tokens
