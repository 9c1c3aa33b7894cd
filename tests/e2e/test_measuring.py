"""logits, perplexity, bench latency."""
import json

from conftest import shared_path


def test_logits_have_the_stated_shape(quire, smollm2):
    told = quire.json("logits", smollm2, "--token-ids", "1,4093,198,28", "--top", "4")
    assert list(told) == ["positions"] and len(told["positions"]) == 4
    for i, row in enumerate(told["positions"]):
        assert list(row) == ["position", "token_id", "logsumexp", "next_logprob", "top"]
        assert row["position"] == i and len(row["top"]) == 4
        values = [value for _, value in row["top"]]
        assert values == sorted(values, reverse=True) and values[0] <= 0
    assert [row["token_id"] for row in told["positions"]] == [1, 4093, 198, 28]
    assert told["positions"][-1]["next_logprob"] is None
    assert len(quire.ok("logits", smollm2, "--token-ids", "1,4093").splitlines()) == 3


def test_logits_do_not_depend_on_chunks_or_threads(quire, smollm2):
    text = "The cache holds keys and values of all the tokens that came before. " * 5
    options = ["logits", smollm2, "--text", text, "--top", "5", "--context", "256", "--json"]
    whole = quire.ok(*options)
    for variant in [["--chunk", "1"], ["--chunk", "7"], ["--chunk", "33"], ["--threads", "1"], ["--chunk", "64", "--threads", "3"]]:
        assert quire.ok(*options, *variant) == whole, variant


def test_exact_logits_equal_the_oracle(quire, smollm2, goldens):
    row = goldens("smollm2-135m")["chat-system"]
    told = quire.json("logits", smollm2, "--token-ids", ",".join(map(str, row["ids"])), "--exact", "--top", "10")
    for i, position in enumerate(told["positions"]):
        assert abs(position["logsumexp"] - row["lse"][i]) < 1e-3
        ours = dict(position["top"])
        for token, value in zip(row["top_ids"][i], row["top_lp"][i]):
            assert token not in ours or abs(ours[token] - value) < 1e-3
        if i + 1 < row["n"]:
            assert abs(position["next_logprob"] - row["next_lp"][i]) < 1e-3


def test_bad_tokens_are_named(quire, smollm2):
    for ids, name in [("1,,2", "--token-ids"), ("1,x", "'x'"), ("999999", "999999"), ("-1", "-1")]:
        done = quire.run("logits", smollm2, "--token-ids", ids)
        assert done.returncode == 2 and name in done.stderr, done.stderr


def check_windows(told, golden, count):
    assert told["windows"] == count
    for key in ["window_nll_sum_all", "window_nll_sum_second_half"]:
        for ours, theirs in zip(told[key], golden[key]):
            assert abs(ours - theirs) < 0.05, key  # 0.02 % of the perplexity is 0.1 of a window's sum


def test_exact_perplexity_equals_the_oracle(quire, smollm2):
    golden = json.loads(shared_path("goldens/smollm2-135m/ppl.json").read_text())
    told = quire.json("perplexity", smollm2, shared_path("text/wikitext-2/wiki.test.raw"), "--exact",
                      "--max-tokens", "1024")
    check_windows(told, golden, 2)
    assert told["all"]["predictions"] == 2 * 511 and told["second_half"]["predictions"] == 2 * 255
    assert not told["first_token_replaced_by_bos"]


def test_exact_perplexity_with_bos_equals_the_oracle(quire, gemma3):
    golden = json.loads(shared_path("goldens/gemma-3-270m/ppl.json").read_text())
    told = quire.json("perplexity", gemma3, shared_path("text/wikitext-2/wiki.test.raw"), "--exact",
                      "--max-tokens", "512")
    check_windows(told, golden, 1)
    assert told["first_token_replaced_by_bos"]


def test_perplexity_as_a_table_and_with_other_windows(quire, smollm2, tmp_path):
    path = tmp_path / "text"
    path.write_text("Keys and values of earlier tokens are kept in blocks. " * 40)
    text = quire.ok("perplexity", smollm2, path, "--window", "64")
    told = quire.json("perplexity", smollm2, path, "--window", "64")
    assert f"{told['all']['ppl']:.4f}" in text and told["windows"] == told["text_tokens"] // 64
    done = quire.run("perplexity", smollm2, path, "--window", "4096")
    assert done.returncode == 2 and "--window" in done.stderr and "4096" in done.stderr
    done = quire.run("perplexity", smollm2, tmp_path / "none")
    assert done.returncode == 1 and "none" in done.stderr


def test_bench_latency(quire, smollm2):
    told = quire.json("bench", "latency", smollm2, "-p", "40", "-n", "4", "--repeat", "2", "--depth", "32")
    for key in ["prefill_tokens_per_s", "decode_tokens_per_s", "read_bandwidth_gb_per_s"]:
        assert 0 < told[key]["min"] <= told[key]["median"] <= told[key]["max"]
    assert told["depth"] == 32 and told["repeat"] == 2
    assert told["decode_weights_gb_per_s"] > 0 and told["decode_share_of_read_bandwidth"] > 0
    table = quire.ok("bench", "latency", smollm2, "-p", "16", "-n", "2", "--repeat", "1")
    assert "prefill 16" in table and "decode 2" in table and "read bandwidth" in table
