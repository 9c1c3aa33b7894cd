"""bench batch and bench throughput."""
import json

import pytest

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def azure(tmp_path):
    """Eight requests within two seconds: 40 + 10·i prompt tokens, 4 + i output tokens."""
    path = tmp_path / "azure.csv"
    rows = [f"2023-11-16 18:15:{46 + i // 4}.{i % 4 * 25:02d}00000,{40 + 10 * i},{4 + i}\n" for i in range(8)]
    path.write_text(HEADER + "".join(rows))
    return path


@pytest.fixture
def conversation(tmp_path):
    """Four turns, each 512 tokens longer than the one before it, and a stranger."""
    path = tmp_path / "turns.jsonl"
    turns = [{"timestamp": 5000 * i, "input_length": 512 * (i + 1), "output_length": 2, "hash_ids": list(range(i + 1))}
             for i in range(4)]
    turns.append({"timestamp": 20000, "input_length": 100, "output_length": 2, "hash_ids": [99]})
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return path


def test_batch_has_the_columns_of_the_rival(quire, smollm2):
    told = quire.json("bench", "batch", smollm2, "-p", "64", "-n", "4", "-b", "1,3,8", "--rounds", "2")
    assert [row["b"] for row in told["rows"]] == [1, 3, 8] and told["rounds"] == 2 and not told["shared_prompt"]
    for row in told["rows"]:
        batch = row["b"]
        assert (row["pp"], row["tg"], row["n_kv"]) == (64, 4, batch * 68)
        assert row["decode_cached_tokens"] == 63  # the last prompt token yields the first decoded one
        for key in ["t_pp_s", "s_pp_tokens_per_s", "t_tg_s", "s_tg_tokens_per_s", "t_s", "s_tokens_per_s"]:
            assert 0 < row[key]["min"] <= row[key]["median"] <= row[key]["max"]
        for rate, seconds, tokens in [("s_pp_tokens_per_s", "t_pp_s", 64 * batch), ("s_tg_tokens_per_s", "t_tg_s", 4 * batch)]:
            assert row[rate]["max"] == pytest.approx(tokens / row[seconds]["min"])
            assert row[rate]["min"] == pytest.approx(tokens / row[seconds]["max"])
        # A round's total lies between the sums of the phases' extremes.
        assert row["t_pp_s"]["min"] + row["t_tg_s"]["min"] <= row["t_s"]["min"] * (1 + 1e-9)
        assert row["t_s"]["max"] <= (row["t_pp_s"]["max"] + row["t_tg_s"]["max"]) * (1 + 1e-9)


def test_batch_with_one_prompt_for_all(quire, smollm2):
    told = quire.json("bench", "batch", smollm2, "-p", "40", "-n", "3", "-b", "4", "--shared-prompt")
    assert told["shared_prompt"] and told["rows"][0]["n_kv"] == 40 + 4 * 3
    assert told["rows"][0]["decode_cached_tokens"] == 39


def test_batch_as_a_table(quire, smollm2):
    lines = quire.ok("bench", "batch", smollm2, "-p", "32", "-n", "2", "-b", "2").splitlines()
    columns = [cell.strip() for cell in lines[1].strip("|").split("|")]
    assert columns == ["PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s"]
    cells = [float(cell) for cell in lines[3].strip("|").split("|")]
    assert cells[:4] == [32, 2, 2, 68] and len(lines) == 4
    assert cells[8] == pytest.approx(cells[4] + cells[6], abs=0.002)


@pytest.mark.parametrize("options, name, value, limit", [
    (["--batch", "0"], "--batch", "0", "[1, 256]"),
    (["--batch", "1,257"], "--batch", "257", "[1, 256]"),
    (["--batch", "1,,2"], "--batch", "''", "whole number"),
    (["--batch", "x"], "--batch", "'x'", "whole number"),
    (["--prompt-tokens", "0"], "--prompt-tokens", "0", "[1, 1048576]"),
    (["--gen-tokens", "-1"], "--gen-tokens", "-1", "[1, 1048576]"),
    (["--rounds", "0"], "--rounds", "0", "[1, 1000]"),
    (["--context", "100"], "--context", "100", "192"),
    (["--kv-type", "f7"], "--kv-type", "f7", "f16"),
])
def test_batch_refuses(quire, smollm2, options, name, value, limit):
    done = quire.run("bench", "batch", smollm2, *options)
    assert done.returncode == 2 and done.stdout == ""
    assert name in done.stderr and value in done.stderr and limit in done.stderr, done.stderr


def check_percentiles(row):
    assert 0 <= row["p50"] <= row["p90"] <= row["p99"] <= row["max"] and row["mean"] <= row["max"]


def test_throughput_runs_every_request_to_its_recorded_end(quire, smollm2, azure):
    told = quire.json("bench", "throughput", smollm2, "--trace", azure)
    assert told["requests"] == 8 and told["requests_refused"] == 0 and not told["dry_run"]
    assert told["prompt_tokens"] == sum(40 + 10 * i for i in range(8)) and told["output_tokens"] == sum(4 + i for i in range(8))
    assert told["hit_rate"] == 0 and told["infinite_cache_hit_rate"] == 0
    assert told["context_length"] == 40 + 70 + 4 + 7
    assert told["requests_per_s"] == pytest.approx(8 / told["seconds"])
    assert told["output_tokens_per_s"] == pytest.approx(told["output_tokens"] / told["seconds"])
    check_percentiles(told["ttft_ms"])
    check_percentiles(told["inter_token_ms"])


def test_throughput_by_arrival_time(quire, smollm2, azure):
    told = quire.json("bench", "throughput", smollm2, "--trace", azure, "--arrivals", "--scale", "0.1", "--requests", "5")
    assert told["requests"] == 5 and told["arrivals"] == "timed"
    assert told["seconds"] >= 1.0  # the fifth comes a second after the first
    assert told["prompt_tokens"] == 4 + 5 + 6 + 7 + 8


def test_throughput_finds_what_requests_share(quire, smollm2, conversation):
    told = quire.json("bench", "throughput", smollm2, "--trace", conversation, "--arrivals", "--speed-up", "5", "--scale", "0.25")
    assert told["requests"] == 5
    # Turn i has 128·(i + 1) tokens; what came before it is whole blocks of 32.
    assert told["cached_tokens"] == 128 + 256 + 384
    assert told["infinite_cache_hit_rate"] == told["hit_rate"] == pytest.approx(768 / (128 * 10 + 25))


def test_dry_run_counts_the_same_tokens(quire, smollm2, conversation):
    told = quire.json("bench", "throughput", smollm2, "--trace", conversation, "--dry-run", "--arrivals")
    assert told["dry_run"] and told["requests"] == 5 and "requests_per_s" not in told
    assert told["prompt_tokens"] == 512 * 10 + 100 and told["output_tokens"] == 10
    assert told["cached_tokens"] == 512 * 6
    assert told["rows"] == told["prompt_tokens"] - told["cached_tokens"] + 5  # and one decode each
    assert told["running_max"] == 1
    check_percentiles(told["ttft_steps"])


def test_dry_run_of_each_policy(quire, smollm2, azure):
    """16 blocks, 13 of which the context of 400 tokens would take: in one range there is room for one sequence."""
    options = ["bench", "throughput", smollm2, "--trace", azure, "--dry-run", "--kv-bytes", "12000000", "--context", "400"]
    by_policy = {policy: quire.json(*options, "--ask-context", "--kv-policy", policy)
                 for policy in ["contiguous", "paged", "radix"]}
    for told in by_policy.values():
        assert told["requests"] == 8 and told["output_tokens"] == sum(4 + i for i in range(8))
    assert by_policy["contiguous"]["kv_internal_waste"] > by_policy["paged"]["kv_internal_waste"]
    assert by_policy["contiguous"]["running_max"] == 1 < by_policy["paged"]["running_max"]
    assert by_policy["contiguous"]["kv_external_waste"] > 0
    assert by_policy["paged"]["kv_external_waste"] == by_policy["radix"]["kv_external_waste"] == 0


def test_each_policy_runs_the_model(quire, smollm2, azure):
    """16 blocks of which a range for the whole context takes 13; requests leave when they have their tokens."""
    options = ["bench", "throughput", smollm2, "--trace", azure, "--kv-bytes", "12000000", "--context", "400", "--ask-context"]
    for policy in ["contiguous", "paged", "radix"]:
        told = quire.json(*options, "--kv-policy", policy)
        assert told["kv_policy"] == policy and told["requests"] == 8
        assert told["output_tokens"] == sum(4 + i for i in range(8))
        if policy == "contiguous":
            assert told["kv_internal_waste"] > 0.5 and told["running_mean"] == 1
        else:
            assert told["kv_internal_waste"] < 0.5 and told["running_mean"] > 1 and told["kv_external_waste"] == 0


def test_requests_that_can_never_fit_are_counted(quire, smollm2, azure):
    told = quire.json("bench", "throughput", smollm2, "--trace", azure, "--context", "100", "--scale", "1", "--requests", "7")
    # 40 + 4 … 90 + 9 tokens fit, 100 + 10 do not.
    assert told["requests"] == 6 and told["requests_refused"] == 1
    assert "100" in told["first_refusal"]


@pytest.mark.parametrize("options, name, value", [
    (["--scale", "0"], "--scale", "[0.01, 1]"),
    (["--scale", "2"], "--scale", "2"),
    (["--rate", "3"], "--rate", "--arrivals"),
    (["--speed-up", "0", "--arrivals"], "--speed-up", "(0, "),
    (["--requests", "-1"], "--requests", "-1"),
    (["--kv-policy", "buddy"], "--kv-policy", "'buddy'"),
    (["--kv-bytes", "0"], "--kv-bytes", "0"),
])
def test_throughput_refuses(quire, smollm2, azure, options, name, value):
    done = quire.run("bench", "throughput", smollm2, "--trace", azure, *options)
    assert done.returncode == 2 and name in done.stderr and value in done.stderr, done.stderr


def test_malformed_traces_are_named(quire, smollm2, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(HEADER + "2023-11-16 18:15:46,12,3\n2023-11-16 18:15:47,-12,3\n")
    done = quire.run("bench", "throughput", smollm2, "--trace", path)
    assert done.returncode == 1 and f"{path}:3: ContextTokens: -12" in done.stderr
    done = quire.run("bench", "throughput", smollm2)
    assert done.returncode == 2 and "--trace" in done.stderr
    done = quire.run("bench", "throughput", smollm2, "--trace", tmp_path / "none", "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["error"]["code"] == "not_found"
