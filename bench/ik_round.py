"""One round of ik_llama.cpp, in the Python that has its wheel: prefill and decode rates as JSON.

    python bench/ik_round.py MODEL PROMPT_TOKENS GEN_TOKENS THREADS
"""
import json
import random
import sys
import time

from ik_llama_cpp import _ctypes_api as api
from ik_llama_cpp import _internals as ik


class Model(ik.IkModel):
    """Weights interleaved at load, as ik_llama.cpp's own benchmarks have them; its wrapper has no option for that."""

    def __init__(self, path):
        defaults = api.llama_model_default_params

        def repacked():
            params = defaults()
            params.repack_tensors = True
            return params

        api.llama_model_default_params = repacked
        super().__init__(path, use_mmap=False)
        api.llama_model_default_params = defaults


def timed(context, batch):
    """Seconds of a batch, its logits included."""
    start = time.perf_counter()
    if context.decode(batch) != 0:
        sys.exit("ik_round: decode failed")
    context.get_logits(-1)
    return time.perf_counter() - start


def main():
    path, prompt_tokens, gen_tokens, threads = sys.argv[1], *map(int, sys.argv[2:5])
    model = Model(path)
    context = ik.IkContext(model, n_ctx=prompt_tokens + gen_tokens + 64, n_threads=threads, flash_attn=True)
    tokens = [random.Random(1).randrange(100, 10000) for _ in range(prompt_tokens)]
    for _ in range(2):  # the first warms up
        context.kv_cache_clear()
        prefill = timed(context, ik.make_batch(tokens))
        decode = sum(timed(context, ik.make_batch_single(tokens[i % prompt_tokens], prompt_tokens + i))
                     for i in range(gen_tokens))
    print(json.dumps({"prefill": prompt_tokens / prefill, "decode": gen_tokens / decode}))


if __name__ == "__main__":
    main()
