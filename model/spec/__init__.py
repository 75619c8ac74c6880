"""What vLLM's scheduler, block pool, coordinator and connector may do, event by event.

Each guard is one file. It looks at one step of a machine: what was observed before, the event as
it was resolved, and what was observed after. It chooses nothing, and it leaves open what vLLM may
do in more than one way: which free block is taken, who is preempted, how long a chunk is, when a
block is cached.
"""
