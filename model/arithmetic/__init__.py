"""The arithmetic of KV blocks, written once. It runs on ints and on Z3 terms."""
