"""Historical mistakes of vLLM, by topic. Each is a function that takes another's place."""
