"""Small changes of vLLM, and whether the digest of a run tells head from base."""
