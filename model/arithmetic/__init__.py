"""The arithmetic of KV blocks, written once. It runs on ints, on columns of ints and on Z3
terms."""
