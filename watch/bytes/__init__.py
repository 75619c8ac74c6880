"""Checks the bytes of KV blocks, beside what the scheduler counts. For real engines only."""
