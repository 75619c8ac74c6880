"""Fakes of a GPU: a device that copies, and threads that run, when the kit says so.

The module `replaced` lists which names of vLLM and torch each fake replaces. The accounting of a
connector stays its own: only calls that copy, wait for a copy or start a thread are replaced.
"""
