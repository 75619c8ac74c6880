"""The table of shipped connectors and rules of the contract, for one or more vLLMs.

    python benchmarks/connectors.py --vllm PATH --vllm PATH > reports/connectors.md

Each vLLM has a process, in which each connector is driven with several seeds. A rule holds if
no episode breaks it and something was judged. A search ends at what it finds, so the cells beside a
finding count what was judged up to it.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from typing import Any

TITLE = "# Shipped connectors and the contract"
HOW = """
Each connector that vLLM ships is driven by the [connector kit](../docs/howto/test-a-connector.md):
the real scheduler, both real sides of the connector, KV caches of real shapes on a CPU. The number
beside *holds* is what was compared or asked. Made by `benchmarks/connectors.py`.
"""
NOT_DRIVEN = {
    "DecodeBenchConnector": "it fills blocks with values that are wrong on purpose",
    "LMCacheConnectorV1": "most of it is LMCache's own engine, and that package is not installed",
    "MoRIIOConnector": "it needs ROCm and the package mori",
    "HF3FSKVConnector": "it needs a 3FS server",
    "FlexKVConnectorV1": "its package is not public",
    "HiSparseConnector": "its attention kernels need a GPU",
    "ECCPUConnector, ECMooncakeConnector": "a producer and a consumer of encoder outputs, and "
    "threads or a transfer engine between them",
}
"""The other registered connectors, and why the kit does not drive them."""

LOOKED_AT = {
    "ExampleConnector": "It takes no chunked prompts: the mapping of a load has the slots of the "
    "whole prompt, the file those of the first chunk, so the engine dies in "
    "`inject_kv_into_layer`. It matches tokens of the prompt alone. A request that was preempted "
    "may find more in the engine's own cache, its answer too: then the number is negative, the "
    "scheduler takes so many tokens off its own hit, and they are computed again. It loads another "
    "file than it looked up: `findings/example_loads_another_file`. And it takes the blocks of a "
    "kernel for those of the engine: `findings/example_takes_blocks_of_a_kernel`.",
    "DecodeBenchConnector": "It fills blocks with values that are wrong on purpose, to measure "
    "decoding. No defect.",
    "OffloadingConnector between two engines that copy from each other, "
    "`connector_survives`": "In 0.32.0 and 0.33.0, and in none of these plans: the "
    "finding `promotion_evicts_what_was_found`.",
    "OffloadingConnector, `connector_survives`": "A forced reset "
    "(`reset_prefix_cache(reset_running_requests=True)`) preempts the requests that run. The next "
    "step names them in `preempted_req_ids` and admits them again, with a load. "
    "`build_connector_meta` then asserts that the jobs of a preempted request are stores, and the "
    "engine dies. Mended in 0.33.0: `findings/forced_reset_ends_offloading`.",
    "MooncakeStoreConnector, `every_request_ends` and `connector_survives`": "The same step: "
    "`build_connector_meta` drops the load or the state of each request in `preempted_req_ids`, "
    "also if it was admitted again. The load is never begun and the request waits for ever, or its "
    "state is missing and the engine dies: `findings/forced_reset_loses_mooncake_load`. Or the end "
    "of a save is not reported, and a request that was aborted keeps its blocks.",
    "OffloadingConnector with files or an object store, `reset_forgets`": "Wanted by vLLM: the "
    "comment of `TieringOffloadingManager.reset_cache` says that files and network stores keep "
    "their data, although the call answers that the cache was reset.",
    "No connector, with images, `every_request_ends`": "In 0.32.0, mended in 0.33.0: two images "
    "with at most one token between them, beside a drafter. The finding `adjacent_images_wait`.",
    "ExampleConnector, also in MultiConnector, `promised_tokens_are_loaded`": "The name of a file "
    "has token ids and images, and neither salt nor adapter. So a request loads KV of another salt "
    "or adapter.",
    "OffloadingConnector with files, in an engine without a prefix cache, "
    "`promised_tokens_are_loaded`": "A mistake of vLLM, in 0.32.0; the plan ends without a finding "
    "on 0.33.0. A store that was begun before a reset of the connector's cache is copied in the "
    "next step, when the worker is to flush it. The reset has given its block on the CPU back, and "
    "a promotion from a file takes it first: the store overwrites what was promoted, and a request "
    "loads the KV of another one.",
    "SimpleCPUOffloadConnector with `lazy_offload`, `kept_blocks_are_given_back`": "A mistake of "
    "vLLM, in 0.32.0 and 0.33.0. It stores what the engine's pool would give up next. Where the "
    "CPU has fewer blocks than it looks at, each store evicts one that it stores again in the next "
    "step. It reports that stores are pending (`has_pending_push_work`), so the engine goes round "
    "for ever without a request, and copies.",
    "OffloadingConnector with much room, beside a window with a drafter, "
    "`stored_prefix_is_offered`": "A mistake of vLLM. With sparse retention a prompt of 13 tokens "
    "(blocks of 4, a window of 8) stores the window's blocks 1 and 2, for a hit that ends at token "
    "12. The look-up asks for one block more, which it drops for the drafter: blocks 0 to 2, and "
    "finds nothing. Prompts that fill a further block are found. So performance is lost "
    "(vllm#48911, vllm#52807 are of this kind).",
    "OffloadingConnector with much room, beside a window one token wider than whole chunks, "
    "`stored_prefix_is_offered`": "A mistake of vLLM, in 0.32.0 and 0.33.0. A token reads one "
    "token less than the window before itself: with a window of 9, blocks of 4 and sparse "
    "retention, the two blocks before the last token of the prompt are stored "
    "(`reachable_block_mask`). `get_sliding_window_size_in_chunks` divides the whole window, so "
    "the look-up needs three blocks in a row, and offers less or nothing. Windows of models are "
    "seldom so wide.",
    "OffloadingConnector, `reset_is_carried_out`": "Its cache is reset twice while "
    "jobs are in flight, and no step is between: the second call asserts that no job waits to be "
    "flushed. An engine core answers that call with the error, and goes on.",
    "OffloadingConnector beside Mamba layers, `promised_tokens_are_loaded`": "Two causes. With "
    "Mamba cache mode `all`, the hit of a whole prompt is not rounded to the end of a state, so "
    "the state after N tokens is loaded as the state after N - 1: vllm#51100 mended it. 0.32.0 has "
    "the code before it, but refuses this mode, as 0.33.0 does: plans have it only where a vLLM "
    "takes it. And Model Runner V2 zeroes the "
    "new blocks of a step before it calls `handle_preemptions`, which waits for the stores that "
    "still read these blocks: zeros are stored under the key of the old content, "
    "or what a partial hit copied there: `findings/zeroed_before_saved`. "
    "The V1 runner calls it first; with that order the plan ends without a finding.",
    "OffloadingConnector beside sliding windows, `promised_tokens_are_loaded`": "In 0.32.0 and "
    "0.33.0. After a reset of the connector's cache, blocks that the "
    "window of a running request has given up are stored again, with what another request has "
    "put there: `findings/reset_stores_window_again`.",
    "OffloadingConnector with chunks of several blocks beside sliding windows, "
    "`promised_tokens_are_loaded`": "In 0.32.0, mended in 0.33.0. A request that begins with a hit "
    "has the null block where the window needs nothing. Of the blocks of a chunk, "
    "`_build_store_jobs` looks at the last one alone. So a chunk whose first block is null is "
    "stored in part, under the key of the whole, and another request loads it whole: the finding "
    "`partial_chunk_is_stored_as_whole`.",
    "OffloadingConnector with hits inside a block, `connector_survives`": "In 0.32.0 and 0.33.0, "
    "and in none of these plans. A request that asks for `max_offload_tokens` ends the engine "
    "where its prompt has a partial tail behind it: `_build_partial_tail_store_jobs` asserts "
    "`boundary <= max_boundary`, and does not leave the tail out. It also takes 0 for no limit: "
    "`findings/tail_beyond_offload_limit`.",
    "LMCacheMPConnector, `promised_tokens_are_loaded` and `request_reads_its_own_tokens`": "Two "
    "causes. The key of a chunk has tokens and the salt, and no adapter: a request loads the KV of "
    "another adapter (vllm#44250, open). And a hit in LMCache that was not loaded counts as "
    "computed, so blocks are stored too early: the finding `unloaded_hit_counts_as_computed`. It "
    "is seen in plans without LoRA.",
    "LMCacheMPConnector, `connector_survives`": "It reports the end of a save for each request "
    "that has ended. One whose load failed, or that was aborted while it loaded, is reported "
    "twice, and the engine dies: the finding `stray_report_dies` (vllm#46240, open). Between the "
    "two reports its blocks are free, and the load still writes to them "
    "(`load_stays_in_its_blocks`), or fails (`failed_blocks_are_of_loads`).",
    "LMCacheMPConnector, `every_request_ends`": "In 0.32.0 and 0.33.0. A load fails, its request "
    "is to be computed again (`kv_load_failure_policy=recompute`), and LMCache still has the "
    "prompt. The connector promises the load again, but its tracker of the request is `READY` "
    "since the first load, so `update_state_after_alloc` does not begin another one: the finding "
    "`failed_load_stays_noted`.",
    "LMCacheMPConnector, `stored_prefix_is_offered`": "A mistake of vLLM, in 0.32.0 and 0.33.0. "
    "Where LMCache has nothing of a prompt, `get_num_new_matched_tokens` returns before it notes "
    "what the engine's own cache has (vllm#39719 counts this). So of a prompt whose first blocks "
    "are there, as many blocks less are stored. And to a request that was preempted it offers "
    "nothing: its source names this as work to be done.",
    "NixlConnector and NixlPushConnector beside sliding windows, "
    "`request_reads_its_own_tokens`": "The finding `window_of_loaded_tokens`.",
    "Connectors beside Mamba layers with hits inside a block, `every_request_ends`": "In 0.33.0, "
    "and in none of these plans. Two loads that end inside a block of states take the whole pool, "
    "and each then needs one block more, for a copy of its state: the finding "
    "`copy_of_load_not_reserved`. The kit names it by its numbers: what a request needs without "
    "the copy is free, and with it is not.",
    "NixlConnector with a drafter, `every_request_ends`": "The finding "
    "`load_keeps_room_for_drafts`.",
    "SimpleCPUOffloadConnector beside chunked local attention, `promised_tokens_are_loaded`": "In "
    "0.32.0, mended in 0.33.0, and in none of these plans: the finding "
    "`chunk_counted_from_local_hit`.",
    "NixlConnector, `gone_engines_are_forgotten`": "A mistake of vLLM, in 0.33.0: D keeps one "
    "number for each engine that it has ever read from (`_remote_registration_generations`), and "
    "`_cleanup_remote_engine`, which removes all state of an engine that is gone, leaves it. It is "
    "small: the name of an engine and a number.",
    "NixlConnector and NixlPushConnector with buffers on the host, `promised_tokens_are_loaded` "
    "and `request_reads_its_own_tokens`": "The findings `rest_of_block_is_not_staged` and, beside "
    "sliding windows, `staging_overwrites_other_groups`. With the diffs of both, 800 plans show "
    "nothing but what is known of pairs without such buffers.",
    "NixlConnector and NixlPushConnector, `statistics_count_once`": "D loads a "
    "prompt of one token, and leaves this token to be computed. So the request counts 0 tokens, is "
    "looked up again, and is counted twice: the cause of `one_token_turn_is_loaded_again`.",
    "OffloadingConnector with files or an object store, `every_request_ends`": "A live-lock: "
    "the finding `promotion_evicts_what_was_found`, which ends an engine too. The "
    "chunks of one prompt, of all its groups (18 in the plan), are more than the CPU tier has room "
    "for (16). Each look-up begins a promotion of six of them, and for it gives up others of the "
    "same prompt. So `TieringOffloadingManager.lookup` answers RETRY for ever: the engine is idle, "
    "chunks are copied at each step, and the request waits.",
    "NixlPushConnector, where D has more ranks than the model has KV heads": "In 0.32.0 and "
    "0.33.0, and in none of these plans. P refuses it in an assertion of its handshake "
    "(`_validate_remote_agent_handshake`), which is logged. D has registered its blocks by then, "
    "is never written to, and its request waits for ever: D's watchdog of registrations only "
    "logs, too. NixlConnector (pull) serves the same numbers of ranks.",
    "NixlConnector, where P's blocks are narrower than D's, `promised_tokens_are_loaded`": "The "
    "finding `padding_is_paired_with_tokens`.",
    "MultiConnector of SimpleCPUOffloadConnector and MooncakeStoreConnector, "
    "`every_request_ends`": "After a forced reset: the finding `forced_reset_loses_mooncake_load`.",
    "NixlPushConnector, where P and D have blocks of unequal sizes, `connector_survives`": "In "
    "0.32.0 and 0.33.0, and in none of these plans: the finding `push_dies_across_block_sizes`. "
    "Where D's blocks are narrower, D dies of an assertion in `block_size_ratio` when its first "
    "load ends; with equal blocks of a kernel of an IndexError in `get_transfer_results`, which "
    "takes P's list of blocks, and D has none in push mode. Where P's are narrower, P refuses in "
    "an assertion, which is logged, and D waits. So push takes equal block sizes alone, and "
    "nothing says so.",
    "MooncakeConnector beside Mamba layers, where P and D have unequal numbers of ranks, "
    "`promised_tokens_are_loaded`": "In 0.32.0 and 0.33.0: vllm#53078, which is open. A state is "
    "several tensors one after the other, each divided by rank. P copies one piece of the page, "
    "which is not the part of the other rank; of latent layers it takes all caches to be alike on "
    "each rank, and copies the state of one.",
    "MooncakeConnector beside sliding windows, `request_reads_its_own_tokens`": "The finding "
    "`window_of_loaded_tokens`.",
    "MooncakeConnector beside several cache groups, `every_request_ends`": "In none of these "
    "plans: `failed_load_holds_the_queue`, and, beside states that are copied inside a block, "
    "`copy_of_load_not_reserved`.",
    "MooncakeConnector, `reports_are_of_known_transfers`": "In 0.32.0, mended in 0.33.0, and in "
    "none of these plans. D asks for several requests in one message. P answers for the first, and "
    "is gone before the second is ready. When D has waited long enough (nine minutes, by its "
    "defaults), `receive_kv_from_single_worker` reports all of the message as failed, also what "
    "was loaded long ago: blocks that have other owners by then, and a request that the scheduler "
    "does not know any more, so D dies (`assert req_id in self.requests`).",
    "MultiConnector, `reset_forgets`": "`reset_cache` answers True also if a child has not "
    "implemented it (None), so ExampleConnector keeps its files.",
}
"""The findings, looked at in the source of vLLM."""


def one(vllm: str | None, seeds: int, examples: int) -> dict[str, Any]:
    """The results in this process: for each connector what was judged, and what was found."""
    from kvproof.cli.machines import borrow

    borrow(vllm, None, live=True)
    from vllm import __version__

    from kvproof.connectors.search import search
    from kvproof.connectors.shipped import SHIPPED

    results: dict[str, Any] = {}
    for name, shipped in SHIPPED.items():
        print(name, file=sys.stderr, flush=True)
        judged: Counter[str] = Counter()
        findings: dict[str, str] = {}
        try:
            for seed in range(seeds):
                found = search(shipped.subject, examples, seed, shrinks=False)
                judged += found.judged
                for finding in found.result.findings if found.result else ():
                    findings.setdefault(finding.invariant, "; ".join(finding.sentences))
                for rule in found.tolerated:
                    findings.setdefault(rule, "seen, and not grave")
        except Exception as error:
            results[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            continue
        results[name] = {"judged": judged, "findings": findings}
    return {"version": __version__, "results": results}


def cell(rule: Any, result: dict[str, Any]) -> str:
    """What one vLLM's connector did about a rule."""
    if "error" in result:
        return f"not judged: {result['error']}"
    if rule.id in result["findings"]:
        return f"**finding**: {result['findings'][rule.id].replace('|', '/')}"
    count = result["judged"].get(rule.counts, 0)
    return f"holds ({count:,})" if count else f"not judged: {rule.otherwise}"


def page(runs: list[dict[str, Any]]) -> str:
    """The page."""
    from kvproof.connectors.contract.rules import RULES
    from kvproof.connectors.shipped import SHIPPED

    lines = [TITLE, HOW]
    for name, shipped in SHIPPED.items():
        extra = json.dumps(shipped.subject.extra)
        lines += [f"## {name}", "", f"`{shipped.subject.name}` with `{extra}`", ""]
        lines.append("| rule | " + " | ".join(run["version"] for run in runs) + " |")
        lines.append("|---|" + "---|" * len(runs))
        for rule in RULES.values():
            cells = (cell(rule, run["results"][name]) for run in runs)
            lines.append(f"| `{rule.id}` | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["## The findings, looked at in the source", ""]
    lines += [f"- **{name}.** {what}" for name, what in LOOKED_AT.items()]
    lines += ["", "## Not driven", "", "| connector | because |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in NOT_DRIVEN.items()]
    return "\n".join(lines)


def main() -> None:
    """Run a process for each vLLM, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", action="append", metavar="WHICH")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--alone", action="store_true", help="print the results of one vLLM")
    args = parser.parse_args()
    trees = args.vllm or [None]
    if args.alone:
        print(json.dumps(one(trees[0], args.seeds, args.examples)))
        return
    common = ["--alone", f"--seeds={args.seeds}", f"--examples={args.examples}"]
    processes = []
    for tree in trees:
        which = ["--vllm", tree] if tree else []
        command = [sys.executable, __file__, *common, *which]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0] for process in processes]
    print(page([json.loads(output.splitlines()[-1]) for output in outputs]))


if __name__ == "__main__":
    main()
