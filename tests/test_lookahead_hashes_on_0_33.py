"""Block hashes that cover the next token on vLLM 0.33.0, the first release that has them: green as
released, and not with a mistake put in.

Where the cache folder has no 0.33.0 nothing is run: `kvproof replay TRACE --releases 0.33.0` fills
it. So these tests are not among those that must run wherever live vLLM is installed.
"""

import json

import pytest

from tests.processes import python

pytest.importorskip("vllm")

from kvproof.live.releases import cache_folder, packages
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
from tests.on_release import AS_RELEASED, MISTAKES

RELEASE = "0.33.0"
PLACE = packages(cache_folder(None) / "vllm" / RELEASE)

pytestmark = pytest.mark.skipif(
    not PLACE.exists(), reason=f"the cache folder has no vLLM {RELEASE}"
)

PRESETS = [
    name
    for presets in (CLUSTERS, LIVE_CLUSTERS)
    for name, cluster in presets.items()
    if any(engine.hash_lookahead_tokens for engine in cluster.engines)
]
FINDS = {
    "next_token_not_hashed": "drafter_holds_its_key",
    "last_match_dropped_too": "hit_is_the_longest",
}


def ran(mistake: str, *clusters: str) -> list[dict[str, str | None]]:
    """What `tests.on_release` prints."""
    done = python("-m", "tests.on_release", RELEASE, mistake, *clusters)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_vllm_as_released_is_green() -> None:
    green = [{"cluster": name, "verdict": "SAMPLED", "finding": None} for name in PRESETS]
    assert ran(AS_RELEASED, *PRESETS) == green


def test_every_mistake_is_put_in() -> None:
    assert set(FINDS) == set(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    (answer,) = ran(mistake, "lookahead-hashes")
    assert (answer["verdict"], answer["finding"]) == ("VIOLATED", FINDS[mistake])
