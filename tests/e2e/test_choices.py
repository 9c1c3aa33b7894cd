"""quire run with several answers to one prompt."""
import pytest

SMALL = ["--context", "1024"]
ASK = ["-p", "Name a colour and say why you like it.", "--max-tokens", "16", *SMALL]


def test_samples_are_the_answers_of_their_seeds(quire, smollm2):
    options = [*ASK, "--temperature", "1.0"]
    told = quire.json("run", smollm2, *options, "--n", "3", "--seed", "40")
    assert [choice["index"] for choice in told["choices"]] == [0, 1, 2]
    assert told["text"] == told["choices"][0]["text"] and told["token_ids"] == told["choices"][0]["token_ids"]
    for index, choice in enumerate(told["choices"]):
        alone = quire.json("run", smollm2, *options, "--seed", str(40 + index))
        assert "choices" not in alone
        assert choice["token_ids"] == alone["token_ids"] and choice["text"] == alone["text"]
    assert told["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in told["choices"])
    prompt_blocks = len(told["prompt_token_ids"]) // told["kv"]["block_tokens"] + 1
    assert told["kv"]["blocks_used_max"] <= prompt_blocks + 3 * 2
    assert told["kv"]["blocks_used_max"] < told["kv"]["blocks_as_copies_max"]


def test_best_of_keeps_the_most_probable(quire, smollm2):
    options = [*ASK, "--temperature", "1.0", "--seed", "7", "--logprobs", "0"]
    every = quire.json("run", smollm2, *options, "--n", "4")["choices"]
    means = [sum(token["logprob"] for token in choice["logprobs"]) / len(choice["logprobs"]) for choice in every]
    best = quire.json("run", smollm2, *options, "--best-of", "4")["choices"]
    assert len(best) == 1
    assert best[0]["token_ids"] == every[means.index(max(means))]["token_ids"]
    assert best[0]["score"] == pytest.approx(max(means), abs=1e-4)


def test_beams_are_ordered_and_shown(quire, smollm2):
    told = quire.json("run", smollm2, *ASK, "--n", "3", "--beam-width", "4")
    scores = [choice["score"] for choice in told["choices"]]
    assert scores == sorted(scores, reverse=True) and len({tuple(choice["token_ids"]) for choice in told["choices"]}) == 3
    assert told["choices"][0]["logprob_sum"] == pytest.approx(scores[0] * len(told["token_ids"]), abs=1e-4)
    done = quire.run("run", smollm2, *ASK, "--n", "3", "--beam-width", "4")
    assert done.returncode == 0 and "as copies" in done.stderr
    for index, choice in enumerate(told["choices"]):
        assert f"[{index}] {len(choice['token_ids'])} tokens, {choice['finish_reason']}, score " in done.stdout
        assert choice["text"] in done.stdout


def test_diverse_groups_begin_differently(quire, smollm2):
    told = quire.json("run", smollm2, *ASK, "--n", "3", "--beam-width", "3", "--beam-groups", "3", "--diversity-penalty", "50")
    assert len({choice["token_ids"][0] for choice in told["choices"]}) == 3


@pytest.mark.parametrize("options, words", [
    (["--n", "0"], ["--n", "0"]),
    (["--n", "1000"], ["--n", "1000", "128"]),
    (["--n", "4", "--best-of", "2"], ["best_of", "2", "4"]),
    (["--beam-width", "0"], ["--beam-width", "0"]),
    (["--beam-width", "100000"], ["--beam-width", "64"]),
    (["--n", "5", "--beam-width", "4"], ["n is 5", "4"]),
    (["--beam-width", "4", "--beam-groups", "3"], ["beam_groups", "3", "4"]),
    (["--beam-width", "4", "--length-penalty", "nan"], ["--length-penalty", "nan"]),
    (["--beam-width", "4", "--early-stopping", "soon"], ["--early-stopping", "soon", "heuristic"]),
    (["--beam-width", "4", "--temperature", "1"], ["temperature", "1"]),
    (["--length-penalty", "2"], ["--beam-width"]),
])
def test_what_cannot_be_is_named(quire, smollm2, options, words):
    done = quire.run("run", smollm2, *ASK, *options)
    assert done.returncode in (1, 2) and done.stdout == ""
    for word in words:
        assert word in done.stderr
