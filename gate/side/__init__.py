"""The process that drives one vLLM: what it does for each request of the gate, and what its runs
break. A campaign and `kvproof connector` drive plans in the same way."""
