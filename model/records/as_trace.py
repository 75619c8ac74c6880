"""A record as a trace: the same requests and the same choices, so that a machine can follow them.

This needs a record that begins where its engine began, an engine within the limits of a cluster,
and requests that a cluster can have. `NotFollowed` says what of this does not hold.

The prompts are texts that are equal where the tokens were equal. A record has no tokens, but a hash
for each piece of a prompt and of its answer, and equal hashes stand for equal tokens up to there. A
piece gets a character of its own. In the model each token of an answer is the same character, so a
later prompt that has an answer in it gets it, too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import to_builtins

from kvproof.model.config import Cluster, EngineConfig, Job
from kvproof.model.config.limits import PROMPT_TOKENS_MAX
from kvproof.model.errors import UsageError
from kvproof.model.events import (
    Abort,
    Accepted,
    Admit,
    Choice,
    Complete,
    Compute,
    Event,
    Evict,
    Preempt,
    Release,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
    Submit,
)
from kvproof.model.files.decoding import converted
from kvproof.model.finding import Finding
from kvproof.model.records.lines import Arrived, RecordedEvent
from kvproof.model.records.record import Record
from kvproof.model.state import SAMPLED
from kvproof.model.traces.trace import Trace

CLUSTER = "record"

TOKENS_MAX = 512
"""The largest number of tokens of an answer in a cluster. An answer that has not ended yet may be
cut there."""


class NotFollowed(Exception):
    """No machine can follow this record. The message says why, in one line."""


def as_trace(record: Record) -> Trace:
    """The record as a trace of live vLLM, up to its first finding. Raises NotFollowed."""
    header = record.header
    _check_beginning(record)
    name = header.engine.name
    taken: list[Event] = []
    finding: Finding | None = None
    for event, findings in record.events:
        taken += _events(name, event)
        if findings:
            finding = findings[0]
            break
    if not taken:
        raise NotFollowed("it has no event")
    return Trace(
        cluster=_cluster(record, taken),
        events=tuple(taken),
        finding=finding,
        machine="live",
        vllm=header.versions.vllm,
        kvproof=header.versions.kvproof,
    )


def _check_beginning(record: Record) -> None:
    header = record.header
    if not header.from_start:
        raise NotFollowed("it does not begin at the start of its engine")
    if header.dropped:
        raise NotFollowed(f"its first {header.dropped} events are not in the file")
    if header.stopped and not record.findings:  # a death is a finding, and stops it, too
        raise NotFollowed(f"the engine was not watched to the end ({header.stopped})")
    if header.connector is not None:
        name = header.connector.name
        raise NotFollowed(f"its engine has a {name}, and what that can load is not in the file")


def _cluster(record: Record, events: list[Event]) -> Cluster:
    """The cluster of one engine, with the jobs and the events of the environment that occur."""
    kinds = {type(event) for event in events}
    try:
        options = to_builtins(record.header.engine)
        engine = converted(options, EngineConfig, "Its engine", "a smaller one")
        return Cluster(
            CLUSTER,
            (engine,),
            tuple(_jobs(record)),
            aborts=Abort in kinds,
            evictions=Evict in kinds,
            resets=ResetPrefixCache in kinds,
            resets_any_time=ResetRunning in kinds,
        )
    except UsageError as error:
        why = str(error).split(". ")[0]
        raise NotFollowed(f"the model has limits: {why}") from error


def _jobs(record: Record) -> Iterator[Job]:
    arrivals = [event.arrived for event, _ in record.events if event.arrived is not None]
    for each in arrivals:
        if each.resumable:
            raise NotFollowed(f"{each.request} is a session, and its parts are not in the file")
        if not each.reads_cache:
            raise NotFollowed(f"{each.request} reads no prefix cache, which the model always does")
        if each.prompt_tokens > PROMPT_TOKENS_MAX:
            raise NotFollowed(
                f"{each.request} has {each.prompt_tokens} tokens, and a prompt of the model has at "
                f"most {PROMPT_TOKENS_MAX}"
            )
    texts, answered = prompts(arrivals), _answered(record)
    for each in arrivals:
        most = answered.get(each.request, min(each.output_tokens_max, TOKENS_MAX))
        yield Job(each.request, texts[each.request], most, priority=each.priority)


def _answered(record: Record) -> dict[str, int]:
    """The number of tokens of each request that was answered to its end."""
    overlaps = record.header.engine.steps_in_flight > 1
    tokens: Counter[str] = Counter()
    ended: dict[str, int] = {}
    for event, _ in record.events:
        if event.event == "update_from_output":
            tokens.update(event.outputs)
            tokens.update(name for name in event.tokens if name not in event.outputs)
            ended |= {name: tokens[name] for name in event.ended}
            early = [name for name, why in event.ended.items() if why != "length"]
            if early and overlaps:
                raise NotFollowed(
                    f"{early[0]} ended before its last token, while a further step was in flight"
                )
    return ended


# Events.


def _events(name: str, event: RecordedEvent) -> Iterator[Event]:
    """The events that a machine must take for an event of a record. An event without an effect is
    left out."""
    if event.arrived is not None:
        yield Submit(name, event.arrived.request)
    match event.event:
        case "schedule":
            chose = tuple(_choices(event))
            if chose or event.raised:  # of a step that died, what it would have chosen is unknown
                yield Schedule(name, chose or None)
        case "update_from_output":
            if event.tokens or event.raised:
                yield Complete(name, Accepted(event.accepted))
        case "reset_prefix_cache":
            if event.running:
                yield ResetRunning(name)
            elif event.done:
                yield ResetPrefixCache(name)
        case "evict_blocks":
            yield from (Evict(name, block) for block in event.evicted)
        case _:
            yield from (Abort(name, ended) for ended in event.ended)


def _choices(event: RecordedEvent) -> Iterator[Choice]:
    """The choices of a step: before the choices of a request come those that make room for it."""
    admitted = {each.request: each for each in event.admitted}
    left = list(event.preempted)
    for request, tokens in event.tokens.items():
        if request in admitted:
            yield from (Preempt(each.request, each.needy) for each in left)
            left.clear()
            each = admitted[request]
            yield Admit(request, each.hit, each.external)
        yield from (Preempt(each.request, request) for each in left if each.needy == request)
        left = [each for each in left if each.needy != request]
        yield Compute(request, tokens)
    yield from (Preempt(each.request, each.needy) for each in left)
    needy = {each.needy for each in event.preempted}  # a preemption is a release, too
    yield from (Release(name) for name in event.released if name not in needy)


FIRST_CHARACTER = 0x4E00
CHARACTERS = 20_000
"""The characters of pieces: those of a large alphabet, all of which can be printed."""


def prompts(arrivals: Sequence[Arrived]) -> dict[str, str]:
    """A prompt for each request, by its name. Raises NotFollowed."""
    answers = _answers(arrivals)
    characters: dict[str, str] = {}
    texts: dict[str, str] = {}
    for each in arrivals:
        size, end = each.hashed_tokens or 1, each.prompt_tokens
        text = ""
        for index, piece in enumerate(each.hashes):
            if index * size >= end:
                break
            own = characters.setdefault(piece, _character(len(characters)))
            known = answers.get(piece, size)
            text += own * known + SAMPLED * (size - known)
        rest = max(end - len(text), 0)
        texts[each.request] = (text + _character(len(characters)) * rest)[:end]
        if rest:
            characters[f"the rest of {each.request}"] = ""
    _check_answers(arrivals, texts)
    return texts


def _character(number: int) -> str:
    if number >= CHARACTERS:
        raise NotFollowed(f"there are more than {CHARACTERS} different pieces of prompts")
    return chr(FIRST_CHARACTER + number)


def _answers(arrivals: Iterable[Arrived]) -> Mapping[str, int]:
    """For each piece that contains tokens of an answer, the number of tokens before them."""
    found: dict[str, int] = {}
    for each in arrivals:
        size = each.hashed_tokens or 1
        for index, piece in enumerate(each.hashes):
            known = max(each.prompt_tokens - index * size, 0)
            if known < size:
                found[piece] = min(found.get(piece, size), known)
    return found


def _check_answers(arrivals: Iterable[Arrived], texts: Mapping[str, str]) -> None:
    """Check that equal texts stand for equal tokens in the answers, too."""
    pieces: dict[str, str] = {}
    for each in arrivals:
        size = each.hashed_tokens or 1
        text = texts[each.request].ljust(len(each.hashes) * size, SAMPLED)
        for index, piece in enumerate(each.hashes):
            if pieces.setdefault(text[: (index + 1) * size], piece) != piece:
                raise NotFollowed("two requests with equal prompts got different answers")
