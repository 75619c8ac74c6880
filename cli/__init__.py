"""The program `kvproof`: one small file per command, thin over the other rooms."""
