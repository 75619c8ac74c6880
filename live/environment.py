"""Sets the environment variables for vLLM: no network, no advice about performance. Import this
module before vLLM."""

import logging
import os

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
# The tensors are small, and a thread of OpenMP that waits for work takes a processor.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if os.environ["VLLM_CONFIGURE_LOGGING"] == "0":
    # Advice about the performance of block sizes is of no use here.
    logging.getLogger("vllm").addHandler(logging.NullHandler())
    logging.getLogger("vllm").setLevel(logging.ERROR)
