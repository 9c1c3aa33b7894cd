"""Help, versions, and faults that no model is needed for."""
import json

import pytest

COMMANDS = ["run", "info", "tokenize", "template", "logits", "perplexity", "cache", "bench", "bench latency"]
MODEL_COMMANDS = ["run", "logits", "perplexity", "bench latency"]


def fault(done, status):
    """The one line on stderr."""
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1 and lines[0].startswith("quire: "), done.stderr
    return lines[0]


def test_version(quire):
    assert quire.ok("--version").startswith("quire ")


def test_help_lists_the_commands(quire):
    text = quire.ok("--help")
    for command in COMMANDS[:-1]:
        assert f"\n  {command} " in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(quire, command):
    text = quire.ok(*command.split(), "--help")
    assert f"quire {command}" in text
    if command != "bench":
        assert "--json" in text


@pytest.mark.parametrize("command", MODEL_COMMANDS)
def test_commands_with_a_model_have_its_options(quire, command):
    text = quire.ok(*command.split(), "--help")
    for option in ["--threads", "--isa", "--kv-type", "--exact", "--context", "--packed-cache", "--packed-cache-bytes"]:
        assert option in text


def test_no_command(quire):
    done = quire.run()
    assert done.returncode == 2 and done.stdout == "" and "perplexity" in done.stderr


@pytest.mark.parametrize("arguments, names", [
    (["frob"], ["frob", "tokenize"]),
    (["run", "m.gguf", "--temprature", "1"], ["--temprature"]),
    (["run"], ["model"]),
    (["run", "m.gguf", "--max-tokens", "ten"], ["--max-tokens", "'ten'"]),
    (["run", "m.gguf", "--max-tokens", "-1"], ["--max-tokens", "-1", "0"]),
    (["run", "m.gguf", "--max-tokens"], ["--max-tokens"]),
    (["run", "m.gguf", "--temperature", "101"], ["--temperature", "101", "100"]),
    (["run", "m.gguf", "--temperature", "nan"], ["--temperature", "nan"]),
    (["run", "m.gguf", "--top-p", "0"], ["--top-p", "(0, 1]"]),
    (["run", "m.gguf", "--min-p", "1.01"], ["--min-p", "[0, 1]"]),
    (["run", "m.gguf", "--typical-p", "2"], ["--typical-p"]),
    (["run", "m.gguf", "--top-k", "-2"], ["--top-k"]),
    (["run", "m.gguf", "--repetition-penalty", "0"], ["--repetition-penalty"]),
    (["run", "m.gguf", "--presence-penalty", "-2.5"], ["--presence-penalty", "[-2, 2]"]),
    (["run", "m.gguf", "--frequency-penalty", "3"], ["--frequency-penalty"]),
    (["run", "m.gguf", "--logit-bias", "5"], ["--logit-bias", "ID=B"]),
    (["run", "m.gguf", "--logit-bias", "5=500"], ["--logit-bias", "500", "100"]),
    (["run", "m.gguf", "--stop", ""], ["--stop"]),
    (["run", "m.gguf", "--seed", "-1"], ["--seed"]),
    (["run", "m.gguf", "--logprobs", "21"], ["--logprobs", "20"]),
    (["run", "m.gguf", "--threads", "-1"], ["--threads"]),
    (["run", "m.gguf", "-p", "a", "--packed-cache", ""], ["--packed-cache", "off"]),
    (["run", "m.gguf", "--packed-cache-bytes", "many"], ["--packed-cache-bytes", "many"]),
    (["cache", "--packed-cache", "off"], ["--packed-cache", "off"]),
    (["cache", "m.gguf"], ["m.gguf"]),
    (["run", "m.gguf", "-p", "a", "--file", "b"], ["--file"]),
    (["run", "m.gguf", "--seed", "1", "--seed", "2"], ["--seed", "more than once"]),
    (["run", "m.gguf", "-p", "a", "--logprobs", "1"], ["--logprobs", "--json"]),
    (["run", "m.gguf"], ["--prompt", "stdin"]),
    (["logits", "m.gguf"], ["--token-ids"]),
    (["logits", "m.gguf", "--token-ids", "1,,2"], ["--token-ids"]),
    (["logits", "m.gguf", "--text", "a", "--top", "101"], ["--top", "100"]),
    (["perplexity", "m.gguf"], ["file"]),
    (["perplexity", "m.gguf", "f", "--window", "1"], ["--window"]),
    (["bench"], []),
    (["bench", "latency", "m.gguf", "--repeat", "0"], ["--repeat"]),
    (["template", "t.jinja"], ["--context"]),
])
def test_usage_faults_name_option_value_and_limit(quire, arguments, names):
    line = fault(quire.run(*arguments), 2)
    for name in names:
        assert name in line, line


def test_faults_are_json_too(quire):
    done = quire.run("run", "m.gguf", "--top-k", "-2", "--json")
    error = json.loads(done.stdout)["error"]
    assert error["field"] == "--top-k" and error["code"] == "invalid_argument"
    assert done.stderr == f"quire: {error['message']}\n"


@pytest.mark.parametrize("command", ["run", "info", "tokenize", "template", "logits", "perplexity", "bench latency"])
def test_a_missing_model(quire, command, tmp_path):
    context = tmp_path / "context.json"
    context.write_text('{"messages": []}')
    extra = {"run": ["-p", "x"], "tokenize": ["--text", "x"], "logits": ["--text", "x"],
             "template": ["--context", context], "perplexity": [context]}.get(command, [])
    done = quire.run(*command.split(), "/nonexistent/model.gguf", *extra, "--json")
    assert "/nonexistent/model.gguf" in fault(done, 1)
    assert json.loads(done.stdout)["error"]["code"] == "not_found"


@pytest.mark.parametrize("command", ["run", "info", "tokenize", "logits"])
@pytest.mark.parametrize("content", [b"", b"GGUF", b"This is no model. " * 99, b"GGUF\x03\x00\x00\x00" + b"\xff" * 64])
def test_a_file_that_is_no_model(quire, command, content, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    extra = {"run": ["-p", "x"], "info": []}.get(command, ["--text", "x"])
    fault(quire.run(command, path, *extra), 1)


def test_a_folder_that_is_no_model(quire, tmp_path):
    done = quire.run("run", tmp_path, "-p", "x")
    assert done.returncode in (1, 2) and str(tmp_path) in done.stderr


@pytest.mark.parametrize("part", [0.01, 0.5, 0.999])
def test_a_truncated_model(quire, smollm2, tmp_path, part):
    content = smollm2.read_bytes()
    path = tmp_path / "model.gguf"
    path.write_bytes(content[:int(len(content) * part)])
    line = fault(quire.run("run", path, "-p", "x"), 1)
    assert len(line) > 20


def test_bad_values_that_the_engine_knows(quire, smollm2):
    assert "i387" in fault(quire.run("run", smollm2, "-p", "x", "--isa", "i387"), 2)
    for command in (["run", smollm2, "-p", "x"], ["perplexity", smollm2, __file__], ["info", smollm2]):
        told = fault(quire.run(*command, "--kv-type", "f8"), 2)
        for name in ("'f8'", "f32", "f16", "bf16", "fp8", "int8", "int4"):
            assert name in told


def test_the_machine(quire):
    machine = quire.json("info")
    assert machine["usable_cpus"] >= 1 and "scalar" in machine["isas"]
    assert machine["default_isa"] in machine["isas"]
    assert quire.json("info", "--isas") == machine
    assert "scalar" in quire.ok("info")
