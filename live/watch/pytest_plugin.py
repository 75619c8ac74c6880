"""`pytest --kvproof`: in any suite with vLLM, a test fails in which an invariant does not hold.

Without the option nothing else of kvproof is imported.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvproof.live.watch.watching import Watching

WATCHING: "pytest.StashKey[Watching]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option."""
    parser.getgroup("kvproof").addoption(
        "--kvproof",
        action="store_true",
        help="watch each vLLM scheduler, and fail a test in which KV blocks are counted wrongly",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Watch from now on. vLLM is imported here, after the suite has set its environment."""
    if session.config.getoption("--kvproof"):
        from kvproof.live.watch import switch

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


def _text(found: list[str]) -> str:
    return "kvproof: " + "\n".join(dict.fromkeys(found))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """What was judged."""
    watching = config.stash.get(WATCHING, None)
    if watching is not None:
        terminalreporter.section("kvproof")
        for line in watching.summary():
            terminalreporter.write_line(line)
