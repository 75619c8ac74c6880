"""A finding's trace as a pytest file in vLLM's own terms: one template, with the events as
statements and one assertion.

The statements are first run on base and on head, and what vLLM shows after each is compared. What
differs, and is nearest to the finding, is asserted. A file is kept only if it fails on head and
passes on base.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from pprint import pformat
from textwrap import indent
from typing import NamedTuple, Protocol

from msgspec.structs import fields

from kvproof.invariants.registry import CHECKS
from kvproof.live import options
from kvproof.live.reproducer import choosing
from kvproof.live.reproducer.choosing import Claim, Observed
from kvproof.live.reproducer.running import RanFile
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.config.engine import REQUESTS_MAX
from kvproof.model.config.extra_keys import ADAPTERS, plain
from kvproof.model.config.sides import giver, taker
from kvproof.model.environment.arrivals import arrival
from kvproof.model.events import (
    Abort,
    Admit,
    Complete,
    Continue,
    Event,
    Evict,
    LeaseExpire,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
    StrayReport,
    Submit,
    TransferDone,
    TransferFail,
    describe,
)
from kvproof.model.files.folders import made_folder, part_of
from kvproof.model.files.reading import read_text
from kvproof.model.files.writing import write_fresh, write_new
from kvproof.model.finding import Finding
from kvproof.model.state import SAMPLED
from kvproof.model.traces.trace import Trace

TEMPLATE = Path(__file__).parent / "template.py"

CONSTANTS = "\n\nTOKEN, DRAFT, END"
"""The text that follows the imports of the template."""

TRIES_MAX = 3
"""The largest number of assertions that are tried."""

WIDTH = 88

RUN = "python -m pytest --noconftest -p no:cacheprovider"


class BothTrees(Protocol):
    """Base and head, in this order, each in a process that has imported it."""

    def observed(self, file: Path) -> tuple[Observed, Observed]:
        """The values that both trees show after each statement of a file."""

    def tested(self, file: Path) -> tuple[RanFile, RanFile]:
        """The outcome of a test on both trees."""


class Draft(NamedTuple):
    """A trace as statements, before the assertion is chosen. `made` has the statements that make
    the engines, and `engines` the variable of each engine. Each of the `statements` has a
    comment."""

    finding: Finding
    engines: dict[str, str]
    made: list[str]
    statements: list[tuple[str, str]]


def write(trace: Trace, trees: BothTrees, folder: Path, name: str) -> Path | str:
    """Write `test_NAME.py` into a folder. Returns its path, or the reason where no file fails on
    head and passes on base. Raises UsageError where the file cannot be written."""
    draft = drafted(trace)
    if isinstance(draft, str):
        return draft
    stem = "test_" + re.sub(r"\W", "_", name)
    with part_of(made_folder(folder) / name) as scratch:
        file = scratch / "observe.py"
        write_new(file, observing(draft))
        base, head = trees.observed(file)
        if why := head.error or base.error:
            return why
        if not base.seen:
            return f"the statements do not run on base ({base.raised})"
        if why := choosing.departs(trace.events, draft.engines, head):
            return why
        why = "no difference between head and base can be seen in vLLM's own terms"
        engine = draft.engines.get(draft.finding.about.engine, "")
        claims = choosing.claims(draft.finding, engine, base, head)
        for number, claim in enumerate(claims[:TRIES_MAX]):
            text = generated(draft, claim, stem)
            file = scratch / f"{stem}_{number}.py"
            write_new(file, text)
            on_base, on_head = trees.tested(file)
            if (on_head.outcome, on_base.outcome) == ("fails", "passes"):
                return write_fresh(folder, stem, ".py", text)
            why = f"the file {on_head.outcome} on head and {on_base.outcome} on base"
            why += f" ({on_head.why or on_base.why})"
    return why


def drafted(trace: Trace) -> Draft | str:
    """The statements of a trace, or why there are none."""
    cluster = trace.cluster
    if trace.finding is None:
        return "the trace has no finding"
    if why := unsupported(cluster):
        return why
    writer = Writer(cluster)
    statements = [(writer.statement(each), describe(each)) for each in trace.events]
    statements.append((running_on(cluster), "All that can finish finishes."))
    engines = {each.name: VARIABLES[each.role] for each in cluster.engines}
    made = [making(cluster, each) for each in cluster.engines]
    return Draft(trace.finding, engines, made, statements)


def observing(draft: Draft) -> str:
    """A file with a function that runs the statements and shows all engines after each."""
    shown = ", ".join(f"{each}=shown({each})" for each in draft.engines.values())
    lines = [*draft.made]
    for code, _ in draft.statements:
        lines += [code, f"show({shown})"]
    return _program("observe(tmp_path: Path, show: Callable[..., None])", lines)


def generated(draft: Draft, claim: Claim, stem: str) -> str:
    """The whole file."""
    lines = [*draft.made]
    for code, comment in draft.statements[: claim.after + 1]:
        lines += [*_wrapped(f"# {comment}", "# "), *[code] * bool(code)]
    lines += _assertion(claim)
    check = CHECKS.get(draft.finding.invariant)
    must = check.name if check else draft.finding.invariant
    test = re.sub(r"\W", "_", draft.finding.invariant)
    origin = f" ({check.origin})" if check and "vllm#" in check.origin else ""
    said = [*_wrapped(f'"""What must be true: {_prose(must)}{origin}.'), ""]
    said += [*_wrapped(f"What happens: {_prose(draft.finding.sentence)}."), ""]
    said += [f"Run: {RUN} {stem}.py", '"""', "", ""]
    return "\n".join(said) + _program(f"test_{test}(tmp_path: Path)", lines)


def _assertion(claim: Claim) -> list[str]:
    """The last lines of the test. For a statement that must not raise they are a comment alone."""
    if not claim.path:
        return ["# The last statement must not raise."]
    engine, *keys = claim.path
    place = "".join(f"[{key!r}]" for key in keys)
    return [f"seen = shown({engine}){place}", f"assert seen == {claim.expected!r}, __doc__"]


def _program(function: str, lines: Sequence[str]) -> str:
    """The template, with a function after its imports."""
    text = read_text(TEMPLATE, "template of reproducers")
    imports, constants, rest = text[text.index("import ") :].partition(CONSTANTS)
    body = textwrap.indent("\n".join(lines), "    ")
    return f"{imports}\n\n\ndef {function} -> None:\n{body}\n{constants}{rest}"


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("\\", "/").replace('"""', "'''")


def _wrapped(text: str, following: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH - 4,
        subsequent_indent=following,
        break_long_words=False,
        break_on_hyphens=False,
    )


VARIABLES = {"both": "engine", "prefill": "prefill", "decode": "decode"}
"""The variable of an engine, by its role."""

STEPS = 20
"""The number of steps after which a request that waits for nothing must have finished."""

KNOWN = {
    *("name", "groups", "num_blocks", "role", "chunk_tokens", "physical_per_logical"),
    *("prefix_caching", "retention", "kv_events", "store", "policy", "max_requests"),
    *("steps_in_flight", "drafts", "match_unit", "hash_lookahead_tokens", "one_way"),
    *("reserve_whole_prompt", "long_prefill_tokens", "watermark_blocks"),
}
"""The options of an engine that a reproducer can set."""


def unsupported(cluster: Cluster) -> str:
    """Why there is no reproducer for this cluster, empty where there can be one."""
    if cluster.pushes:
        return "push transfers need the worker of NIXL, which a reproducer does not have"
    for engine in cluster.engines:
        for field in fields(engine):
            if field.name not in KNOWN and getattr(engine, field.name) != field.default:
                return f"a reproducer does not know the option {field.name} of an engine"
        if engine.store and engine.connected:
            return "a reproducer does not know a store beside KV transfers"
        if engine.store and engine.drafts and engine.overlaps:
            return "a reproducer does not know what a store keeps of drafts in flight"
    return ""


def making(cluster: Cluster, engine: EngineConfig) -> str:
    """The statement that makes an engine, with one argument on each line."""
    arguments = "".join(f"{each},\n" for each in ("tmp_path", *_arguments(cluster, engine)))
    return f"{VARIABLES[engine.role]} = make_engine(\n{indent(arguments, '    ')})"


def _arguments(cluster: Cluster, engine: EngineConfig) -> Iterator[str]:
    """The arguments of `make_engine`, without those with their default value."""
    specs = (f"    {_spec(group, engine.drafts)},\n" for group in engine.groups)
    yield f"[\n{''.join(specs)}]"
    yield f"num_blocks={engine.num_blocks}"
    yield f"chunk_tokens={engine.chunk_tokens}"
    of_drafter = [number for number, group in enumerate(engine.groups) if group.eagle]
    others = any(group.attention and not group.eagle for group in engine.groups)
    ratios = tuple(each.physical_per_logical for each in (cluster.prefill, cluster.decode))
    chosen = {
        "max_requests": (engine.max_requests, REQUESTS_MAX),
        "hash_block_size": (engine.hash_unit if engine.partial_block_hits else 0, 0),
        "prefix_caching": (engine.prefix_caching, True),
        "overlaps": (engine.overlaps, False),
        "drafts": (engine.drafts, 0),
        "drafter": ("eagle" if engine.lookahead else "ngram", "ngram"),
        "drafter_groups": (of_drafter if others else [], []),
        "hash_lookahead": (bool(engine.hash_lookahead_tokens), False),
        "retention": (engine.retention, None),
        "kv_events": (engine.kv_events, False),
        "embeds": (any(job.embeds for job in cluster.jobs), False),
        "transfer": (_transfer(cluster, engine), None),
        "kernel_blocks": (ratios[:: 1 if engine.role == "prefill" else -1], (1, 1)),
        "policy": (engine.policy, "fcfs"),
        **{name: (value, None) for name, value in options.of_scheduler(engine).items()},
    }
    for name, (value, usual) in chosen.items():
        if value != usual:
            below = "\n" + " " * (len(name) + 1)
            yield f"{name}={pformat(value, sort_dicts=False)}".replace("\n", below)
    if engine.store:
        yield f"keep=keeping({engine.hit_unit}, states={engine.has_state})"


def _spec(group: Group, drafts: int) -> str:
    """The spec of a cache group, as vLLM makes it."""
    size = f"block_size={group.block_size}"
    if group.kind == "full":
        return f"specs.FullAttentionSpec({size}, **SHAPE)"
    if group.kind == "window":
        return f"specs.SlidingWindowSpec({size}, sliding_window={group.window}, **SHAPE)"
    kept = f", num_speculative_blocks={drafts}" if drafts else ""
    return f"specs.MambaSpec({size}, mamba_cache_mode={group.mode!r}{kept}, **STATES)"


def _transfer(cluster: Cluster, engine: EngineConfig) -> dict[str, object] | None:
    """What `KVTransferConfig` gets; None for an engine without a connector."""
    if not engine.has_connector:
        return None
    found: dict[str, object] = {
        "kv_connector": "StoreConnector" if engine.store else "NixlConnector",
        "kv_role": options.kv_role(engine),
        "engine_id": engine.name,
        "kv_load_failure_policy": cluster.load_failure,
    }
    if cluster.follow_up_turns:
        both_ways = {"bidirectional_kv_xfer": True, "kv_recompute_threshold": 0}
        found["kv_connector_extra_config"] = both_ways
    return found


def running_on(cluster: Cluster) -> str:
    """The statement that runs all requests to their end that can finish."""
    return f"serve(prefill, decode, {STEPS})" if cluster.disaggregated else f"run(engine, {STEPS})"


class Writer:
    """A writer of the statements of one trace. Event by event, it records what later statements
    need."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.submitted: dict[str, int] = {}
        self.admitted: dict[str, Admit] = {}

    def statement(self, event: Event) -> str:
        """The statement of an event; empty where nothing happens in vLLM."""
        match event:
            case Submit(engine=engine):
                return self._submit(event)
            case Continue():
                return self._continue(event)
            case Schedule(engine=engine):
                found = [each for each in event.chose or () if isinstance(each, Admit)]
                self.admitted |= {each.request: each for each in found}
                return self._call("schedule", engine)
            case Complete():
                return self._complete(event)
            case Abort(engine=engine, request=name):
                return self._call("abort", engine, repr(name))
            case Evict(engine=engine, block=block):
                return f"{self._variable(engine)}.manager.evict_blocks({{{block}}})"
            case ResetPrefixCache(engine=engine):
                return f"{self._variable(engine)}.scheduler.reset_prefix_cache()"
            case ResetRunning(engine=engine):
                reset = "reset_prefix_cache(reset_running_requests=True)"
                return f"{self._variable(engine)}.scheduler.{reset}"
            case StrayReport(engine=engine, request=name):
                receives = engine == self.cluster.decode.name
                return self._report(engine, name, "recving" if receives else "sending")
            case TransferDone(request=transfer):
                source, sent = giver(self.cluster, transfer)
                sink, taken = taker(self.cluster, transfer)
                reader = VARIABLES[sink.role]
                return self._call("end_transfer", source.name, repr(sent), reader, repr(taken))
            case TransferFail(request=transfer):
                sink, taken = taker(self.cluster, transfer)
                failed = f"failed_recving={{{taken!r}}}"
                return self._report(sink.name, taken, "recving", failed)
            case LeaseExpire(request=transfer):
                source, sent = giver(self.cluster, transfer)
                return self._report(source.name, sent, "sending")
        return ""

    def _variable(self, engine: str) -> str:
        return VARIABLES[self.cluster.engine(engine).role]

    def _call(self, function: str, engine: str, *arguments: str) -> str:
        return f"{function}({', '.join([self._variable(engine), *arguments])})"

    def _report(self, engine: str, name: str, kind: str, *more: str) -> str:
        return self._call("report", engine, f"finished_{kind}={{{name!r}}}", *more)

    def _add(self, engine: str, name: str, prompt: str, tokens: int, *more: str) -> str:
        priority = self.cluster.job(name).priority
        more = (*more, f"priority={priority}") if self.cluster.by_priority and priority else more
        return self._call("add", engine, repr(name), repr(prompt), str(tokens), *more)

    def _submit(self, event: Submit) -> str:
        job = self.cluster.job(event.request)
        known = arrival(self.cluster, event.request, event.engine)
        self.submitted[event.request] = len(job.prompt)
        more = list(self._params(event))
        more += ["resumable=True"] * bool(job.parts)
        more += ["embeds=True"] * job.embeds
        more += [f"stops={known.stops}"] * bool(known.stops)
        more += ["extra={'kv_cache_report_mode': 'full'}"] * job.reports_hits
        more += ["cache_salt='one-name'"] * (job.extra_key == "salt")
        if job.extra_key in ADAPTERS:
            number, path = ADAPTERS.index(job.extra_key) + 1, f"/adapters/{job.extra_key}"
            more.append(f"adapter=({number}, {path!r})")
        return self._add(event.engine, job.name, plain(known.prompt), known.max_tokens, *more)

    def _params(self, event: Submit) -> Iterator[str]:
        """The transfer parameters with which a router sends a request."""
        role, job = self.cluster.engine(event.engine).role, self.cluster.job(event.request)
        if role == "decode":
            yield f"params=prefill.params[{job.name!r}]"
        elif role == "prefill" and job.follows:
            yield f"params=decode.params.get({job.follows!r}, FOR_DECODE)"
        elif role == "prefill":
            yield "params=FOR_DECODE"

    def _continue(self, event: Continue) -> str:
        job = self.cluster.job(event.request)
        part = _part(job.prompt, job.parts, job.max_tokens, self.submitted[job.name])
        self.submitted[job.name] += job.max_tokens - 1 + len(part)
        more = ["resumable=True"] * bool(part)
        return self._add(event.engine, job.name, part or SAMPLED, job.max_tokens, *more)

    def _complete(self, event: Complete) -> str:
        more = [f"accepted={dict(event.accepted)}"] * bool(event.accepted)
        if event.failed:
            size = self.cluster.engine(event.engine).groups[0].block_size
            admit = self.admitted[event.failed]
            numbers = admit.local_hit + size, admit.local_hit // size, admit.external // size
            lost = self._call("fail_load", event.engine, repr(event.failed), *map(str, numbers))
            more.append(f"invalid_block_ids={lost}")
        return self._call("complete", event.engine, *more)


def _part(prompt: str, parts: tuple[str, ...], max_tokens: int, submitted: int) -> str:
    """The next part of a session, of which these many tokens were submitted; empty at the end."""
    length = len(prompt)
    for part in parts:
        if length == submitted:
            return part
        length += max_tokens - 1 + len(part)
    return ""
