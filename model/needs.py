"""What a check must see of a machine to judge it.

The model and a driven vLLM show their whole state, so every check is asked of them. A vLLM that is
only watched shows views. Each view has some of these facts about the objects that an event touches,
and only the checks that need no other facts are asked of it. The same applies to two joined
records. A check that needs facts that no view has is not judged there, and the reported reason
names them.
"""

from enum import Enum


class Need(Enum):
    """One kind of facts. The value names it in words, to be read after "it needs"."""

    STATE = "the whole state of all engines"

    # Blocks.
    BLOCKS = "the reference counts, the keys and all holders of blocks"
    REFERENCES = "everything that holds a reference to a block"
    NULL_BLOCK = "the uses of the null block"
    CONTENTS = "the content of cached blocks"
    WRITES = "the blocks that a step writes"
    PREDICTIONS = "the predicted and the taken number of blocks of a request"
    GAINED_REFERENCES = "reference counts before and after an event that is no step"
    LOST_ENTRIES = "the cache entries that an event loses, and the blocks that it takes"
    ERASED = "the blocks that the worker erases"
    ERASED_FOR_STATES = "the blocks that the worker must erase for the layers with a state"
    REUSE_ORDER = "the free blocks in the order in which they are taken, before and after an event"
    FREE_WHEN_IDLE = "the number of free blocks of an idle engine"

    # Requests.
    TABLES = "the block tables, the tokens and the counters of requests"
    WINDOWS_KEPT = "the tokens that a window keeps"
    STATES_KEPT = "the states that a request keeps"
    LEFT_BEHIND = "the blocks that windows and states have left behind"
    QUEUES = "the queues, and the status of requests"
    PROMPTS = "the prompts of requests as they arrived"
    CHANGED_STATUS = "the status of requests before and after an event, and whom the event is about"
    CHOSEN_BLOCKS = "the blocks that each choice of a step hits, takes and frees, in order"
    COMPUTED = "all requests and all that is cached, before and after an event"
    CHANGED_COUNTS = "the computed tokens of requests before and after each event"
    SAMPLED = "the tokens that the worker has sampled, and which of them count"
    ENDS = "all reasons for which a request may end, such as stop tokens"

    # Steps.
    BATCH = "the batch of a step, and its limits"
    ADMITTED = "the status and the pending tokens of a request before its admission"
    PRIORITIES = "the priorities of those that run, are admitted and wait"
    WATERMARK = "the free blocks after an admission"
    ROOM = (
        "all reasons to pass over a request, such as adapters, encoder inputs and slots of a "
        "drafter"
    )
    EMPTY_STEPS = "steps that schedule nothing"
    PLACES = "the places in the worker's batch"
    SAMPLES_IN_FLIGHT = "the tokens that steps in flight sample"
    BLOCKS_IN_FLIGHT = "the blocks that steps in flight use"
    DEATHS = "the exceptions that end an engine"
    KEPT_WHEN_IDLE = "what an idle engine keeps"
    FUTURE = "what can still happen"

    # The prefix cache.
    LOOKUPS = "the look-ups of the prefix cache, with what they could find"
    HIT_BLOCKS = "the blocks of a hit, with the prefixes under which they are cached"
    SERVED = "the prompts that were served before"
    RESETS = "the resets of the prefix cache"
    EVENTS = "what a listener to KV events believes"
    EVENT_TOKENS = "the tokens of KV events"

    # What is read.
    TOKEN_READS = "the tokens that a request attends to"
    STATE_READS = "the states that a request continues from"
    DRAFTED = "the token that the layers of a drafter have used after a block"

    # Transfers.
    FAILED_LOADS = "the tokens of requests whose load has failed"
    OFFERS = "what P offers to D"
    BLOCKS_IN_TRANSFER = "the blocks that a transfer reads or writes"
    PAIRED_BLOCKS = "the blocks of P and D that the worker's connector pairs"
    OFFERED = "the tokens that P offers, at the admission on D"
    LOADED_FROM_P = "the tokens that P has computed, and those that D has loaded"
    PHASES = "the phase of each transfer before and after an event"
    BOTH_ENGINES = "P and D at one time"


Needs = tuple[Need, ...]
