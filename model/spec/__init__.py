"""What vLLM's scheduler, block pool, coordinator and connector may do, event by event.

Each guard is one file. A guard judges one step of a machine: the state before, the event with its
choices, and the state after. It makes no choice itself. It permits every alternative that vLLM may
choose: which free block is taken, which request is preempted, how long a chunk is, when a block is
cached.
"""
