"""What a KV connector must keep. Each rule is one file with a `RULE`; `rules` has them all."""
