"""What `--json` prints, as declared types: one file for each command or family of commands."""
