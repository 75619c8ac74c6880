"""The fuzzer of kvproof's inputs: `python -m tests.fuzz --cases 2000 --seed 0`.

Each case has a number. Its input follows from the seed and the number, so a case can be repeated
alone. A case runs in a forked child, in a fresh folder. `judge` says what is wrong with its end.
"""
