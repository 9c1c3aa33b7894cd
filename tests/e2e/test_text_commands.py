"""tokenize, template, info: commands that load no weights."""
import json

import pytest
from conftest import shared_path

VOCABULARIES = ["gpt-2", "deepseek-llm", "llama-spm", "bert-bge"]
SEPARATOR = "\n__ggml_vocab_test__\n"


def test_tokenize_shows_ids_and_pieces(quire, smollm2):
    told = quire.json("tokenize", smollm2, "--text", "Hello world")
    assert set(told) == {"ids", "pieces"}
    assert told["pieces"] == ["Hello", "Ġworld"]
    assert quire.json("tokenize", smollm2, "Hello world") == told
    rows = [line.split() for line in quire.ok("tokenize", smollm2, "--text", "Hello world").splitlines()[1:]]
    assert rows == [[str(i), piece] for i, piece in zip(told["ids"], told["pieces"])]


def test_tokenize_reads_files_and_stdin(quire, smollm2, tmp_path):
    text = "Größe\tnaïve 東京\n\n 🙂\r\n"
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    from_file = quire.json("tokenize", smollm2, "--file", path)
    assert from_file == quire.json("tokenize", smollm2, "--text", text)
    assert quire.json("tokenize", smollm2, "--file", "-", stdin="a b") == quire.json("tokenize", smollm2, "--text", "a b")
    assert quire.run("tokenize", smollm2, "--file", tmp_path / "none").returncode == 1


def test_tokenize_special_tokens(quire, smollm2, gemma3):
    parsed = quire.json("tokenize", smollm2, "--text", "<|im_start|>user")
    assert parsed["pieces"] == ["<|im_start|>", "user"]
    assert len(quire.json("tokenize", smollm2, "--text", "<|im_start|>user", "--no-specials")["ids"]) > 2
    with_bos = quire.json("tokenize", gemma3, "--text", "Hello")
    assert with_bos["ids"][0] == 2
    assert quire.json("tokenize", gemma3, "--text", "Hello", "--no-specials")["ids"] == with_bos["ids"][1:]


def test_tokenize_equals_the_golden_prompts(quire, smollm2, gemma3, goldens, tmp_path):
    for model, path, names in [("smollm2-135m", smollm2, ["raw-unicode", "chat-code"]),
                               ("gemma-3-270m", gemma3, ["raw-unicode"])]:
        for name in names:
            row = goldens(model)[name]
            text = tmp_path / "text"
            text.write_bytes(row["text"].encode())
            assert quire.json("tokenize", path, "--file", text)["ids"] == row["ids"]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_tokenize_with_a_vocabulary_alone(quire, name, tmp_path):
    path = shared_path(f"tokenizers/llama.cpp-vocabs/ggml-vocab-{name}.gguf")
    texts = path.with_name(path.name + ".inp").read_bytes().decode().split(SEPARATOR)
    lines = path.with_name(path.name + ".out").read_text().splitlines()
    pairs = list(zip(texts, lines))
    assert len(pairs) > 40
    for text, line in pairs[::9]:
        file = tmp_path / "text"
        file.write_bytes(text.encode())
        ids = quire.json("tokenize", path, "--file", file, "--no-specials")["ids"]
        assert ids == [int(number) for number in line.split()], repr(text)


def test_template_of_a_model_equals_the_golden_prompt(quire, smollm2, goldens, tmp_path):
    row = goldens("smollm2-135m")["chat-system"]
    context = tmp_path / "context.json"
    context.write_text(json.dumps({"messages": row["messages"], "add_generation_prompt": True}))
    assert quire.ok("template", smollm2, "--context", context) == row["text"]
    assert quire.json("template", smollm2, "--context", context) == {"text": row["text"]}
    assert quire.ok("template", smollm2, "--context", "-", stdin=context.read_text()) == row["text"]


def golden_templates():
    """A few rows with an output: the first of each context, over several templates."""
    base = shared_path("chat-templates")
    contexts = json.loads((base / "golden-contexts.json").read_text())
    rows = [json.loads(line) for line in (base / "golden-jinja2.jsonl").read_text().splitlines()]
    chosen = [row for row in rows if "output" in row and "&#34;" not in row["output"]][::60]
    return base, contexts, chosen


def test_template_files_equal_the_golden_rows(quire, tmp_path):
    base, contexts, rows = golden_templates()
    assert len(rows) >= 5
    for row in rows:
        context = tmp_path / "context.json"
        context.write_text(json.dumps({**contexts["base"], **contexts["contexts"][row["context"]]}))
        text = quire.ok("template", base / row["template"], "--context", context, "--now", "2024-07-26T12:00:00")
        assert text == row["output"], row["template"]


def test_template_faults(quire, tmp_path):
    template, context = tmp_path / "t.jinja", tmp_path / "c.json"
    context.write_text('{"messages": []}')
    template.write_text("{% for %}")
    assert quire.run("template", template, "--context", context).returncode != 0
    template.write_text("{{ raise_exception('no system role') }}")
    done = quire.run("template", template, "--context", context)
    assert done.returncode == 1 and "no system role" in done.stderr
    template.write_text("{{ x }} {{ strftime_now('%Y') }}")
    context.write_text('{"x": "ü", "messages": []}')
    assert quire.ok("template", template, "--context", context, "--now", "2001-02-03T04:05:06") == "ü 2001"
    done = quire.run("template", template, "--context", context, "--now", "yesterday")
    assert done.returncode == 2 and "--now" in done.stderr
    template.write_text("{{ x|tojson }} {{ y.a.b }} {{ tools is none }}")
    context.write_text('{"x": [1.0, 2, "\\u00fc"], "y": {"a": {"b": 20.5}}}')
    assert quire.ok("template", template, "--context", context) == '[1.0, 2, "ü"] 20.5 True'
    for bad in ["[]", "{", ""]:
        context.write_text(bad)
        done = quire.run("template", template, "--context", context)
        assert done.returncode == 2 and "--context" in done.stderr


def test_info_describes_the_file(quire, smollm2):
    info = quire.json("info", smollm2)
    assert info["architecture"] == "llama" and info["layers"] == 30 and info["width"] == 576
    assert info["vocab_size"] == 49152 and info["context_length"] == 8192
    assert info["file_bytes"] == smollm2.stat().st_size
    assert 130e6 < info["parameters"] < 140e6
    assert sum(kind["bytes"] for kind in info["tensor_types"]) < info["file_bytes"]
    # 30 layers x (K and V) x 3 heads x 64 values x 2 bytes
    assert info["memory"]["kv_bytes_per_token"] == 30 * 2 * 3 * 64 * 2
    wide = quire.json("info", smollm2, "--kv-type", "f32")
    assert wide["memory"]["kv_bytes_per_token"] == 2 * info["memory"]["kv_bytes_per_token"]
    # a head's 64 values of K and of V: codes, and their scales; int4's 32 tokens are padded to a multiple of 64
    for kind, head in {"bf16": 256, "fp8": 128 + 2 * 2, "int8": 128 + 2 * 4, "int4": 64 + 3 * 3 + 1}.items():
        told = quire.json("info", smollm2, "--kv-type", kind)["memory"]
        assert (told["kv_type"], told["kv_bytes_per_token"]) == (kind, 30 * 3 * head)
        assert kind in quire.ok("info", smollm2, "--kv-type", kind)
    text = quire.ok("info", smollm2)
    assert "llama" in text and "49152" in text
