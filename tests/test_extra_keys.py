"""Salts and LoRA adapters: equal token ids, other KV."""

import pytest

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.extra_keys import FIRST, plain, written
from kvproof.model.errors import NotValid
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.machine import ModelMachine

ENGINE = EngineConfig("E", (Group("full", 2),), num_blocks=9)


def cluster(*jobs: Job) -> Cluster:
    return Cluster("extra", (ENGINE,), jobs, extra_keys=True)


@pytest.mark.parametrize("key", FIRST)
def test_letters_say_the_extra_key_and_no_more(key) -> None:
    assert written("abc", "") == "abc"
    assert written("abz", key) != "abz"
    assert plain(written("abz", key) + ".?") == "abz.?"
    assert len({written("a", each) for each in FIRST}) == len(FIRST)


@pytest.mark.parametrize(("key", "hit"), [("", 2), ("salt", 0), ("adapter", 0), ("reloaded", 0)])
def test_only_equal_extra_keys_share_blocks(key, hit) -> None:
    machine = ModelMachine(cluster(Job("r0", "abc"), Job("r1", "abc", extra_key=key)))
    for event in Submit("E", "r0"), Schedule("E"), Complete("E"), Submit("E", "r1"):
        machine.take(event)
    [admission] = machine.take(Schedule("E")).effects.admissions
    assert admission.hit == hit


def test_a_job_with_an_extra_key_has_plain_letters() -> None:
    with pytest.raises(NotValid, match=r"Job r0 has the token '7'.*Use small letters"):
        cluster(Job("r0", "a7", extra_key="salt"))
    with pytest.raises(NotValid, match=r"Job r0 has the token 'ａ'"):
        cluster(Job("r0", "ａ"))
