"""quire run with one prompt."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

SMALL = ["--context", "1024"]
QUESTION = ["-p", "Why is the sky blue?", "--max-tokens", "12"]


def test_json_has_the_stated_shape(quire, smollm2):
    told = quire.json("run", smollm2, *QUESTION, *SMALL)
    assert list(told) == ["text", "token_ids", "prompt_token_ids", "finish_reason", "usage", "timings", "kv"]
    assert list(told["usage"]) == ["prompt_tokens", "cached_tokens", "completion_tokens"]
    assert list(told["timings"]) == ["load_ms", "ttft_ms", "prefill_tokens_per_s", "decode_tokens_per_s"]
    assert list(told["kv"]) == ["type", "block_tokens", "blocks_used", "tokens_used", "blocks_used_max",
                                "blocks_as_copies_max", "preemptions"]
    assert told["finish_reason"] == "length" and len(told["token_ids"]) == 12
    assert told["usage"] == {"prompt_tokens": len(told["prompt_token_ids"]), "cached_tokens": 0, "completion_tokens": 12}
    assert told["kv"]["type"] == "f16"
    assert told["kv"]["blocks_used"] * told["kv"]["block_tokens"] >= told["kv"]["tokens_used"]
    assert told["kv"]["tokens_used"] >= len(told["prompt_token_ids"]) + 11
    assert all(value > 0 for value in told["timings"].values())


def test_text_goes_to_stdout_and_figures_to_stderr(quire, smollm2):
    told = quire.json("run", smollm2, *QUESTION, *SMALL)
    done = quire.run("run", smollm2, *QUESTION, *SMALL)
    assert done.returncode == 0 and done.stdout == told["text"] + "\n"
    assert re.search(r"prompt tokens .*12 tokens .*TTFT .*prefill .*decode .*KV ", done.stderr)


def test_the_prompt_may_come_from_stdin_or_a_file(quire, smollm2, tmp_path):
    options = ["--max-tokens", "4", *SMALL]
    asked = quire.json("run", smollm2, "-p", "Name a colour.", *options)
    piped = quire.json("run", smollm2, *options, stdin="Name a colour.\n")
    path = tmp_path / "prompt"
    path.write_text("Name a colour.")
    filed = quire.json("run", smollm2, "--file", path, *options)
    assert asked["prompt_token_ids"] == piped["prompt_token_ids"] == filed["prompt_token_ids"]
    assert asked["token_ids"] == piped["token_ids"] == filed["token_ids"]


def test_the_template_applies_unless_raw(quire, smollm2, gemma3):
    options = ["-p", "Hello", "--max-tokens", "1", *SMALL]
    chat = quire.json("run", smollm2, *options, "--system", "Be brief.")
    raw = quire.json("run", smollm2, *options, "--raw")
    assert len(raw["prompt_token_ids"]) == 1
    context = json.dumps({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
                          "add_generation_prompt": True})
    rendered = quire.ok("template", smollm2, "--context", "-", stdin=context)
    assert chat["prompt_token_ids"] == quire.json("tokenize", smollm2, "--text", rendered)["ids"]
    done = quire.run("run", gemma3, *options)
    assert done.returncode == 0 and "no chat template" in done.stderr


def test_exact_greedy_text_is_the_golden_text(quire, smollm2, goldens):
    row = goldens("smollm2-135m")["chat-simple"]
    told = quire.json("run", smollm2, "-p", row["messages"][0]["content"], "--exact", "--ignore-eos",
                      "--max-tokens", len(row["greedy"]["ids"]), *SMALL)
    assert told["prompt_token_ids"] == row["ids"]
    assert told["token_ids"] == row["greedy"]["ids"]
    assert told["text"] == row["greedy"]["text"]
    assert told["kv"]["type"] == "f32"


def test_logprobs(quire, smollm2):
    told = quire.json("run", smollm2, *QUESTION, *SMALL, "--logprobs", "3")
    assert [row["token_id"] for row in told["logprobs"]] == told["token_ids"]
    for row in told["logprobs"]:
        assert len(row["top"]) == 3 and row["top"][0] == [row["token_id"], row["logprob"]]
        assert row["logprob"] <= 0 and row["top"][0][1] >= row["top"][1][1] >= row["top"][2][1]


def test_seeds_repeat_and_differ(quire, smollm2):
    options = ["-p", "Tell a story.", "--max-tokens", "16", "--temperature", "1.2", *SMALL]
    first = quire.json("run", smollm2, *options, "--seed", "7")["token_ids"]
    assert first == quire.json("run", smollm2, *options, "--seed", "7", "--threads", "1")["token_ids"]
    assert first != quire.json("run", smollm2, *options, "--seed", "8")["token_ids"]


def test_stops_biases_and_ends(quire, smollm2):
    told = quire.json("run", smollm2, *QUESTION, *SMALL)
    word = told["text"].split()[2]
    cut = quire.json("run", smollm2, *QUESTION, *SMALL, "--stop", word, "--stop", "never seen")
    assert cut["text"] == told["text"][:told["text"].index(word)] and cut["finish_reason"] == "stop"
    by_id = quire.json("run", smollm2, *QUESTION, *SMALL, "--stop-token-id", told["token_ids"][3])
    assert by_id["finish_reason"] == "stop" and len(by_id["token_ids"]) <= 4
    forced = quire.json("run", smollm2, *QUESTION, *SMALL, "--logit-bias", "28=100", "--logprobs", "0")
    assert set(forced["token_ids"]) == {28}
    assert quire.json("run", smollm2, "-p", "x", "--max-tokens", "0", *SMALL)["token_ids"] == []


def test_more_than_the_context_is_refused_with_numbers(quire, smollm2):
    done = quire.run("run", smollm2, "-p", "x", "--context", "64", "--max-tokens", "100", "--json")
    assert done.returncode == 1 and "64" in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "resource_exhausted"
    assert quire.run("run", smollm2, "-p", "x", "--context", "64").returncode == 0  # the default yields


def test_a_reader_that_leaves_is_no_fault(quire, smollm2):
    command = [quire.binary, "run", str(smollm2), "-p", "Count.", "--ignore-eos", "--max-tokens", "300", *SMALL]
    for restore in (True, False):  # SIGPIPE at its default, and ignored by the parent
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   restore_signals=restore)
        process.stdout.read(1)
        process.stdout.close()
        told = process.stderr.read().decode()
        assert process.wait(60) in (141, -signal.SIGPIPE)
        assert told == ""


def test_interrupt_ends_with_130(quire, smollm2):
    command = [quire.binary, "run", str(smollm2), "-p", "Count.", "--ignore-eos", "--max-tokens", "900", *SMALL]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def peak_memory(command):
    """Most resident bytes of a process (VmHWM)."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


def test_memory_is_file_and_kv_and_little_more(quire, smollm2):
    per_token = quire.json("info", smollm2)["memory"]["kv_bytes_per_token"]
    peak = peak_memory([quire.binary, "run", str(smollm2), "-p", "Hello", "--max-tokens", "8", *SMALL])
    bound = smollm2.stat().st_size + 1024 * per_token + 60e6
    print(f"peak {peak / 1e6:.1f} MB, bound {bound / 1e6:.1f} MB")
    assert peak <= bound


def test_time_to_the_first_token_is_told(quire, smollm2):
    command = [quire.binary, "run", str(smollm2), "-p", "Why is the sky blue?", "--max-tokens", "8"]
    times = []
    for _ in range(3):
        started = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout.read(1)
        times.append(time.monotonic() - started)
        process.communicate(timeout=60)
    print(f"exec to first text: {sorted(times)[1]:.3f} s (median of 3)")


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_kv_types(quire, smollm2, kv_type):
    assert quire.json("run", smollm2, *QUESTION, *SMALL, "--kv-type", kv_type)["kv"]["type"] == kv_type
