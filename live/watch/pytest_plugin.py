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

        session.config.stash[WATCHING] = switch.on("record")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test in which an invariant does not hold."""
    watching = item.config.stash.get(WATCHING, None)
    if watching is None:
        return (yield)
    watching.take()
    result = yield
    if found := watching.take():
        pytest.fail("kvproof: " + "\n".join(dict.fromkeys(found)), pytrace=False)
    return result


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """What was judged."""
    watching = config.stash.get(WATCHING, None)
    if watching is not None:
        terminalreporter.section("kvproof")
        for line in watching.summary():
            terminalreporter.write_line(line)
