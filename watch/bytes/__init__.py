"""This package checks the bytes of KV blocks, beside what the scheduler counts. It is for real
engines only."""
