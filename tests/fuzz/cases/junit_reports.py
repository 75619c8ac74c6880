"""JUnit reports for `live_summary`: good ones with changes, and XML that is made for harm."""

from random import Random

from tests.fuzz.case import LIVE_SUMMARY, Case
from tests.fuzz.mutations import ODD_TEXTS, bytes_changed


def report(tests: int, name: str = "tests.test_live") -> bytes:
    """A good report."""
    inner = "".join(
        f'<testcase classname="{name}" name="test_{n}" time="0.1">'
        + ("<skipped type='pytest.skip' message='no'/>" if n % 7 == 3 else "")
        + ("<failure message='no'>assert</failure>" if n % 11 == 5 else "")
        + "</testcase>"
        for n in range(tests)
    )
    suite = f'<testsuite name="pytest" tests="{tests}">{inner}</testsuite>'
    return f'<?xml version="1.0" encoding="utf-8"?><testsuites>{suite}</testsuites>'.encode()


def _entities(levels: int) -> bytes:
    """Entities that unfold to ten to the power of `levels`."""
    inner = "".join(
        f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "ha"}">' for n in range(levels + 1)
    )
    return f"<!DOCTYPE t [{inner}]><testsuites>&e{levels};</testsuites>".encode()


def _hard(random: Random) -> tuple[bytes, str]:
    good = report(25)
    return random.choice(
        (
            (b"", "it is empty"),
            (b"<", "it is no XML"),
            (good[: random.randrange(len(good) - 1)], "it was cut off"),
            (b"<html><body/></html>", "it is no JUnit report"),
            (b'{"tests": 3}', "it is JSON"),
            (_entities(9), "its entities unfold to a billion"),
            (_entities(5), ""),
            (
                b'<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><testsuites>&x;</testsuites>',
                "it has an external entity",
            ),
            (b"<a>" * 200_000, "its tags do not end"),
            (b"<testsuites>" + b"<a>" * 5000 + b"</a>" * 5000 + b"</testsuites>", ""),
            (good.replace(b"utf-8", b"utf-16"), ""),
            (good.replace(b"utf-8", b"nosuch"), "its encoding is unknown"),
            (good.replace(b"utf-8", b"utf-7"), ""),
            (good.decode().replace("utf-8", "utf-16").encode("utf-16"), ""),
            (good.replace(b"<testcase", b"<testcase x='\x00'", 1), "it has a zero byte"),
            (good.replace(b"time=", b"name=", 1), "an attribute stands twice"),
            (b"\xef\xbb\xbf" + good, ""),
            (good + good, "there are two roots"),
        )
    )


def case(random: Random, key: str, number: int) -> Case:  # noqa: ARG001
    """A summary of a report."""
    way = random.choice(("bytes", "bytes", "hard", "hard", "odd", "good"))
    data, why = report(random.choice((0, 1, 25))), ""
    if way == "bytes":
        data = bytes_changed(random, data)
    elif way == "hard":
        data, why = _hard(random)
    elif way == "odd":
        odd = random.choice([text for text in ODD_TEXTS if not set(text) & set("\x00\x1b\ud800")])
        data = data.replace(b"test_live", odd.encode())
    required = random.choice((None, "1"))
    return Case(
        ("r.xml",),
        files={"r.xml": data},
        program=LIVE_SUMMARY,
        vllm="",
        invalid=why,
        environment={"KVPROOF_REQUIRE_LIVE": required},
    )
