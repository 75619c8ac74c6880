"""What the gate prints with `--json`, as a declared type: also other programs read it."""
