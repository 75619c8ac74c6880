"""The program `kvproof`: one small file for each command, thin over the other packages."""
