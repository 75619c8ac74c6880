"""A cluster as plain data, as in traces and cluster files."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from kvproof.model.config import Cluster, Engine, Group, Job
from kvproof.model.errors import UsageError, unknown

NOTES = ("about", "distinct_states")
"""Fields of a file that describe its cluster and are no part of it."""


def to_json(cluster: Cluster) -> dict[str, Any]:
    """The cluster as plain data, for trace headers and `--json`."""
    return dataclasses.asdict(cluster)


def _build(cls: Callable[..., Any], what: str, data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise UsageError(f"{what} is {data!r}. Use an object with named fields.")
    known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for field in data:
        if field not in known:
            raise unknown(f"field of {what}", field, known)
    try:
        return cls(**data)
    except TypeError as error:
        raise UsageError(f"{what} is incomplete ({error}). Use every required field.") from error


def _with_parts(job: Any) -> Any:
    """The fields of a job, with its parts as a tuple of prompts."""
    if not isinstance(job, Mapping) or "parts" not in job:
        return job
    parts = job["parts"]
    if not isinstance(parts, (list, tuple)) or not all(isinstance(p, str) for p in parts):
        raise UsageError(f"The parts of a job are {parts!r}. Use a list of prompts.")
    return {**job, "parts": tuple(parts)}


def from_json(data: Any) -> Cluster:
    """A cluster from plain data. Raises UsageError where the data describes no valid cluster."""

    def many(cls: Callable[..., Any], what: str, items: Any) -> tuple[Any, ...]:
        if not isinstance(items, (list, tuple)):
            raise UsageError(f"The {what}s are {items!r}. Use a list of objects.")
        return tuple(_build(cls, what, item) for item in items)

    data = _object(data)
    engines = []
    for item in data["engines"] if isinstance(data["engines"], (list, tuple)) else [None]:
        fields = dict(item) if isinstance(item, Mapping) else item
        if isinstance(fields, dict) and "groups" in fields:
            fields["groups"] = many(Group, "group", fields["groups"])
        engines.append(_build(Engine, "engine", fields))
    rest = {k: v for k, v in data.items() if k not in ("engines", "jobs")}
    rest.setdefault("name", "custom")
    sent = data.get("jobs", ())
    if isinstance(sent, (list, tuple)):
        sent = [_with_parts(item) for item in sent]
    jobs = many(Job, "job", sent)
    cluster: Cluster = _build(Cluster, "cluster", {**rest, "engines": tuple(engines), "jobs": jobs})
    return cluster


def notes(text: str, source: str) -> dict[str, Any]:
    """The notes in a file, if it has them: the purpose of its cluster, and its number of distinct
    states. Raises UsageError where the text is no JSON object."""
    data = _loaded(text, source)
    return {name: data[name] for name in NOTES if name in data}


def parse(text: str, source: str) -> Cluster:
    """A cluster from JSON text; `source` is its name in errors. Raises UsageError where the text
    describes no valid cluster."""
    data = _loaded(text, source)
    return from_json({name: value for name, value in data.items() if name not in NOTES})


def _loaded(text: str, source: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{source} is not JSON ({error.msg} at line {error.lineno}). "
            "Use one JSON object that describes a cluster."
        ) from error
    return _object(data)


def _object(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or "engines" not in data:
        raise UsageError(
            "This is no cluster: a cluster is an object with a field engines.  "
            "Use {name, engines: [{name, groups: [{kind, block_size}]}], jobs: [...]}."
        )
    return data
