"""The KV connector: transfers between P and D, and loads from a store."""
