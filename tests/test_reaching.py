"""A change that few clusters execute is searched there, and in clusters that are alike."""

from collections.abc import Callable, Iterator
from itertools import islice

from msgspec.structs import replace

from kvproof.gate.difference.result import Near, Result
from kvproof.gate.difference.workload import Episodes, Workload
from kvproof.gate.search import workloads
from kvproof.gate.search.further import Further
from kvproof.gate.search.reaching import Reaching
from kvproof.model.config.features.registry import used_by
from tests.fake_sides import compared, nothing

RARE, COMMON = "a.py:rare", "a.py:common"


def executing(feature: str) -> Callable[[Workload], Result]:
    """One function is executed in clusters with a feature alone, the other in all."""

    def run(workload: Workload) -> Result:
        rare = isinstance(workload, Episodes) and feature in used_by(workload.cluster)
        near = {COMMON: Near(1, {"a": 1})} | ({RARE: Near(1, {"a": 1})} if rare else {})
        return replace(nothing(workload), watched=True, near=near)

    return run


def has(feature: str, chosen: Iterator[Episodes], number: int) -> int:
    return sum(feature in used_by(each.cluster) for each in islice(chosen, number))


def test_clusters_that_execute_the_rarest_change_are_driven_further_the_least_driven_first() -> (
    None
):
    with compared(executing("windows"), executing("windows")) as found:
        found.drive(workloads.of_presets(0)[:12])
        made = Reaching(found, Further(0), (COMMON, RARE))
        taken = made.take(40)
    wanted = {
        e.cluster.name for e in workloads.of_presets(0)[:12] if "windows" in used_by(e.cluster)
    }
    assert {each.cluster.name for each in taken} == wanted
    assert len({each.name for each in taken}) == len(taken) == 40
    parts = [[each.cluster.name for each in taken].count(name) for name in wanted]
    assert max(parts) - min(parts) <= 1


def test_random_clusters_that_are_like_these_are_chosen() -> None:
    feature = "eagle"
    with compared(executing(feature), executing(feature)) as found:
        found.drive([*workloads.of_presets(0), *islice(workloads.of_random_clusters(0), 40)])
        made = Reaching(found, Further(0), (COMMON, RARE))
        chosen = [*islice(made.alike(workloads.of_random_clusters(1)), 20)]
    assert len({each.name for each in chosen}) == 20
    assert has(feature, iter(chosen), 20) >= 15
    assert has(feature, workloads.of_random_clusters(1), 20) < 8


def test_where_nothing_executes_a_change_nothing_is_near() -> None:
    with compared(nothing, nothing) as found:
        found.drive(workloads.of_presets(0)[:3])
        made = Reaching(found, Further(0), (RARE,))
        assert made.take(4) == []
        assert len([*islice(made.alike(workloads.of_random_clusters(1)), 4)]) == 4
