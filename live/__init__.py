"""The live room: real vLLM as a machine. The only room that imports `vllm`."""
