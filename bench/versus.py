"""Quire against a rival on the same model file, in interleaved rounds: what bench/vs_llamacpp and bench/vs_ik share."""
import argparse
import json
import os
import statistics
import sys

from page import spread
from rivals import QUIRE, check, model_path


def parser(description):
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--models", nargs="+", default=["smollm2-135m", "qwen2.5-coder-0.5b"], help="names or paths")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("-p", "--prompt-tokens", type=int, default=512)
    options.add_argument("-n", "--gen-tokens", type=int, default=128)
    options.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--json", action="store_true")
    return options


def quire_round(path, args):
    command = [QUIRE, "bench", "latency", path, "-p", args.prompt_tokens, "-n", args.gen_tokens,
               "--depth", args.depth, "--threads", args.threads, "--repeat", 1, "--json"]
    if args.isa != "native":
        command += ["--isa", args.isa]
    out = json.loads(check(command))
    return {phase: out[f"{phase}_tokens_per_s"]["median"] for phase in ("prefill", "decode")}


def measure(path, rival_round, args):
    """Rates of both engines, a list a phase; the engines take turns to be first."""
    rates = {engine: {"prefill": [], "decode": []} for engine in ("quire", "rival")}
    for number in range(args.rounds):
        engines = [("quire", quire_round), ("rival", rival_round)]
        for engine, one_round in engines if number % 2 == 0 else reversed(engines):
            for phase, rate in one_round(path, args).items():
                rates[engine][phase].append(rate)
    return rates


def compare(rival, rival_round, args):
    """Measures all models and prints them; rival_round(path, args) gives {"prefill", "decode"} in tokens/s."""
    for option in ("rounds", "prompt_tokens", "gen_tokens", "threads"):
        if getattr(args, option) < 1:
            sys.exit(f"{option} is {getattr(args, option)}, at least 1 is needed")
    results = []
    for model in args.models:
        rates = measure(model_path(model), rival_round, args)
        for phase, tokens in (("prefill", f"pp{args.prompt_tokens}"), ("decode", f"tg{args.gen_tokens}")):
            quire, other = rates["quire"][phase], rates["rival"][phase]
            results.append({"model": model, "test": tokens, "depth": args.depth, "isa": args.isa, "threads": args.threads,
                            "rival": rival, "quire_rates": quire, "rival_rates": other,
                            "ratio": statistics.median(quire) / statistics.median(other)})
            if not args.json:
                print(f"{model:22} {tokens:6} quire {spread(quire):24} {rival} {spread(other):24} "
                      f"ratio {results[-1]['ratio']:.2f}", flush=True)
    if args.json:
        print(json.dumps(results, indent=1))
