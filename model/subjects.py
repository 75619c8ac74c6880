"""What can be looked at in a vLLM to show a finding: a check names its subjects, so that a
reproducer asserts what the check is about."""

from enum import Enum


class Subject(Enum):
    """One kind of values of a running vLLM. Ordered by preference, where a check does not say: what
    shows in a request comes before block ids."""

    FREE_AND_HELD = "blocks that are free and held"
    MISCOUNTED = "blocks with a wrong reference count"
    PREDICTED = "whether a request took the predicted number of blocks"
    QUEUES = "the number of queues that a request is in"
    PRESENT = "whether a request is still there"
    HIT = "the tokens that a request hit"
    SCHEDULED = "the tokens that a step gives to a request"
    COMPUTED = "the computed tokens of a request"
    STATUS = "the status of a request"
    OUTPUTS = "the number of output tokens of a request"
    PLACEHOLDERS = "the placeholders of a request"
    BLOCKS = "the length of a block table"
    REAL_BLOCKS = "the positions of a block table that have a block"
    COUNTED = "the blocks that are counted as cached"
    READ = "the blocks that a load reads and writes"
    PARAMS = "the transfer parameters of a request"
    COPIES = "the blocks that a step copies"
    EVENTS = "KV events"
    MIRROR = "what a listener to KV events believes"
    DEFERRED = "the blocks whose release waits"
    IS_FREE = "whether a block is free"
    HOLDERS = "the requests that hold a block"
    CACHED_BLOCK = "whether a block is cached"
    REFERENCES = "the reference count of a block"
    FREE = "the number of free blocks"
    PREFIXES = "the number of cached prefixes"
    CACHED = "the number of cache entries"
    LOST = "blocks that nobody has"
    TABLE = "a block table"
    RAISES = "whether vLLM raises an exception"
