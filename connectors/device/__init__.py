"""A device that copies and threads that run when the kit says so, in place of a GPU's.

What of vLLM and torch is replaced by what is in `replaced`. The accounting of a connector stays its
own: only calls that copy, wait for a copy or start a thread are replaced.
"""
