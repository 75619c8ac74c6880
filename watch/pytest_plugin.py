"""`pytest --kvproof`: in any suite with vLLM, a test fails in which an invariant does not hold.

Without the option nothing else of kvproof is imported but a small module.
"""

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from kvproof.watch import switch

if TYPE_CHECKING:
    from kvproof.watch.watching import Watching

WATCHING: "pytest.StashKey[Watching]" = pytest.StashKey()
WORKERS: "pytest.StashKey[list[dict[str, dict[str, int]] | None]]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register `--kvproof`."""
    parser.getgroup("kvproof").addoption(
        "--kvproof",
        action="store_true",
        help="watch each vLLM scheduler, and fail a test in which KV blocks are counted wrongly",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Watch each scheduler from now on. vLLM is imported here, after the suite has set its
    environment."""
    if session.config.getoption("--kvproof"):
        session.config.stash[WATCHING] = watching = switch.on("record")
        watching.tested = True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test whose fixtures build an engine in which an invariant does not hold."""
    return (yield from _watched(item, "setup"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test in which an invariant does not hold."""
    return (yield from _watched(item, "call"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test after which an invariant does not hold."""
    return (yield from _watched(item, "teardown"))


def _watched(item: pytest.Item, when: str) -> Generator[None, Any, Any]:
    watching = item.config.stash.get(WATCHING, None)
    if watching is None:
        return (yield)
    try:
        result = yield
    except BaseException:
        if found := watching.take():
            item.add_report_section(when, "kvproof", _text(found))
        raise
    if found := watching.take():
        pytest.fail(_text(found), pytrace=False)
    return result


def _text(found: list[tuple[str, str]]) -> str:
    """Print the first finding of a test in full. What one mistake breaks later is only counted."""
    (_, first), *rest = found
    counts = Counter(name for name, _ in rest)
    more = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return f"kvproof: {first}" + (f"\n    and in this test after it: {more}" if more else "")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Give the numbers of a worker of pytest-xdist to the process that started it."""
    watching, output = session.config.stash.get(WATCHING, None), _output(session.config)
    if watching is not None and output is not None:
        output["kvproof"] = watching.gathered().plain()


def _output(config: pytest.Config) -> dict[str, Any] | None:
    """Return what a worker of pytest-xdist gives to the process that started it."""
    return getattr(config, "workeroutput", None)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the numbers of a worker of pytest-xdist that has ended. A worker that died has none."""
    if node.config.getoption("--kvproof"):
        numbers = getattr(node, "workeroutput", {}).get("kvproof")
        node.config.stash.setdefault(WORKERS, []).append(numbers)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what was judged in all processes, and whether `KVPROOF` is set and does nothing."""
    watching, workers = config.stash.get(WATCHING, None), config.stash.get(WORKERS, None)
    if why := switch.left_out():
        terminalreporter.section("kvproof")
        terminalreporter.write_line(why)
    if watching is None and workers is None:
        return
    from kvproof.watch.summary import Summary

    summary = Summary() if watching is None else watching.gathered()
    for numbers in workers or ():
        if numbers is None:
            summary.not_watched["a worker of pytest-xdist ended without a summary"] += 1
        else:
            summary.add(numbers)
    terminalreporter.section("kvproof")
    for line in summary.lines():
        terminalreporter.write_line(line)
