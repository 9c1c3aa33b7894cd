#!/usr/bin/env python3
"""Writes the seed corpus of a fuzz target: valid inputs, and ones that are broken in one place each.

    fuzz/make_corpus.py TARGET FOLDER        TARGET: gguf_fuzz, template_fuzz or tokenizer_fuzz
"""
import hashlib
import itertools
import json
import struct
import sys
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
HUGE = (1 << 64) - 1


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def encode(kind, value):
    """A metadata value without its type; an array is (element type, [values])."""
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        element, values = value
        return struct.pack("<IQ", element, len(values)) + b"".join(encode(element, v) for v in values)
    return struct.pack("<" + SCALARS[kind], value)


class Gguf:
    """A file as a list of named fields, so that one can be replaced by something wrong."""

    def __init__(self, version=3, alignment=32):
        self.version = version
        self.alignment = alignment
        self.pairs = []    # (key, type, value)
        self.tensors = []  # (name, dimensions innermost first, type, data)

    def add(self, key, kind, value):
        self.pairs.append((key, kind, value))
        return self

    def tensor(self, name, dimensions, kind=0, data=None):
        if data is None:
            count = 4
            for size in dimensions:
                count *= size
            data = bytes(count)
        self.tensors.append((name, dimensions, kind, data))
        return self

    def fields(self):
        out = [("magic", b"GGUF"), ("version", struct.pack("<I", self.version)),
               ("tensor_count", struct.pack("<Q", len(self.tensors))), ("pair_count", struct.pack("<Q", len(self.pairs)))]
        for key, kind, value in self.pairs:
            out += [(f"key {key}", text(key)), (f"type of {key}", struct.pack("<I", kind)), (f"value of {key}", encode(kind, value))]
        offset = 0
        for name, dimensions, kind, data in self.tensors:
            out += [(f"name {name}", text(name)), (f"rank of {name}", struct.pack("<I", len(dimensions)))]
            out += [(f"dimension {i} of {name}", struct.pack("<Q", size)) for i, size in enumerate(dimensions)]
            out += [(f"kind of {name}", struct.pack("<I", kind)), (f"offset of {name}", struct.pack("<Q", offset))]
            offset += -(-len(data) // self.alignment) * self.alignment
        return out

    def bytes(self, replaced=None):
        out = b"".join((replaced or {}).get(name, raw) for name, raw in self.fields())
        for _, _, _, data in self.tensors:
            out += bytes(-len(out) % self.alignment) + data
        return out


def every_type():
    file = Gguf()
    for kind in SCALARS:
        file.add(f"scalar.{kind}", kind, 1)
        file.add(f"array.{kind}", ARRAY, (kind, [0, 1, 1]))
    file.add("text", STRING, "hello").add("texts", ARRAY, (STRING, ["", "a", "bc"]))
    file.add("nested", ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["x"]), (U8, [])]))
    return file


def every_tensor_type():
    file = Gguf(version=2)
    blocks = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
              12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 30: (1, 2), 39: (32, 17)}
    for kind, (values, size) in blocks.items():
        file.tensor(f"t{kind}", [values, 2], kind, bytes(2 * size))
    return file


def model(architecture):
    """One layer of width 8 with all its weights, in zeros."""
    width, heads, dim, ffn, vocab = 8, 2, 4, 12, 6
    file = Gguf().add("general.architecture", STRING, architecture).add("general.name", STRING, "seed")
    for key, value in [("block_count", 1), ("context_length", 64), ("embedding_length", width), ("feed_forward_length", ffn),
                       ("attention.head_count", heads), ("attention.head_count_kv", 1), ("rope.dimension_count", dim)]:
        file.add(f"{architecture}.{key}", U32, value)
    file.add(f"{architecture}.attention.layer_norm_rms_epsilon", F32, 1e-5)
    file.add(f"{architecture}.rope.freq_base", F32, 10000.0)
    file.add(f"{architecture}.rope.scaling.type", STRING, "linear").add(f"{architecture}.rope.scaling.factor", F32, 2.0)
    file.add("tokenizer.ggml.model", STRING, "gpt2").add("tokenizer.ggml.tokens", ARRAY, (STRING, list("abcdef")))
    file.add("tokenizer.ggml.token_type", ARRAY, (I32, [1] * vocab)).add("tokenizer.ggml.eos_token_id", U32, 5)
    if architecture == "gemma3":
        file.add("gemma3.attention.sliding_window", U32, 16).add("gemma3.attention.sliding_window_pattern", U32, 2)
    file.tensor("token_embd.weight", [width, vocab]).tensor("output_norm.weight", [width])
    kv = dim
    shapes = {"attn_norm": [width], "attn_q": [width, heads * dim], "attn_k": [width, kv], "attn_v": [width, kv],
              "attn_output": [heads * dim, width], "ffn_norm": [width], "ffn_gate": [width, ffn], "ffn_up": [width, ffn],
              "ffn_down": [ffn, width]}
    if architecture == "gemma3":
        shapes |= {"attn_q_norm": [dim], "attn_k_norm": [dim], "post_attention_norm": [width], "post_ffw_norm": [width]}
    for stem, shape in shapes.items():
        file.tensor(f"blk.0.{stem}.weight", shape)
    if architecture == "qwen2":
        for stem, size in [("attn_q", heads * dim), ("attn_k", kv), ("attn_v", kv)]:
            file.tensor(f"blk.0.{stem}.bias", [size])
    if architecture == "llama":
        file.tensor("rope_freqs.weight", [dim // 2], 0, struct.pack("<2f", 1.0, 8.0))
    return file


def broken(file):
    """Every field of a file replaced by wrong values of its size; truncations; doubled pairs and tensors."""
    for name, raw in file.fields():
        for value in (0, 1, 3, 0x7F, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 62, HUGE):
            if len(raw) in (4, 8):
                wrong = (value & ((1 << 8 * len(raw)) - 1)).to_bytes(len(raw), "little")
                yield file.bytes({name: wrong})
            elif len(raw) > 8:  # a string or an array: its first length
                yield file.bytes({name: struct.pack("<Q", value) + raw[8:]})
        yield file.bytes({name: b""})
        yield file.bytes({name: raw + raw})
        yield file.bytes({name: raw[::-1]})
    whole = file.bytes()
    for size in range(0, min(len(whole), 512), 7):
        yield whole[:size]


def gguf_seeds():
    deep = (U8, [1])
    for _ in range(8):
        deep = (ARRAY, [deep])
    yield Gguf().bytes()
    yield Gguf(alignment=8).add("general.alignment", U32, 8).tensor("t", [3]).bytes()
    yield Gguf().add("split.no", U16, 0).add("split.count", U16, 2).add("split.tensors.count", I32, 1).tensor("t", [3]).bytes()
    yield Gguf().add("deep", ARRAY, deep).bytes()
    yield Gguf(version=0x03000000).bytes()
    files = [every_type(), every_tensor_type(), model("llama"), model("qwen2"), model("gemma3")]
    for file in files:
        yield file.bytes()
    yield from itertools.chain.from_iterable(broken(file) for file in files[:3])


def template_seeds():
    context = json.dumps({"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hé\n"}],
                          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": 1.5}}}],
                          "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"})
    sources = [
        "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m.content | trim }}{{ eos_token }}{% endfor %}",
        "{%- if tools %}{{ tools | tojson(indent=2) }}{%- endif %}{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}",
        "{% macro f(x) %}{{ x.split(' ')[0].upper() }}{% endmacro %}{{ f(messages[0].content) }}",
        "{{ strftime_now('%d %b %Y') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
        "{{ raise_exception('no') }}", "{% generation %}x{% endgeneration %}", "{{ range(10) | join(',') }}{{ 'a' * 5 }}{{ 1 // 0 }}",
        "{% for i in range(100000000) %}{% for j in range(100000000) %}x{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ x.y.z }}", "{% if %}", "{{ '\\x00' }}", "{% include 'x' %}",
        "{{" + "(" * 300 + "1" + ")" * 300 + "}}", "{{ [" * 200, "{{ 'x'.format(1) }}{{ 'x' | int + '1.5' | float }}",
    ]
    for source in sources:
        yield source.encode() + b"\0" + context.encode()
    for wrong in (b"", b"{", b"[]", b"null", b'{"messages": 5}', b'{"messages": [[' + b"[" * 500):
        yield sources[0].encode() + b"\0" + wrong


def tokenizer_seeds():
    vocabulary = {c: i for i, c in enumerate(["<unk>", "<s>", "a", "b", "c", "ab", "abc", "Ġ", "Ġa", "##b"])}
    added = [{"id": 1, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]
    models = [
        {"type": "BPE", "vocab": vocabulary, "merges": ["a b", "ab c"], "unk_token": "<unk>"},
        {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"], ["ab", "c"]], "byte_fallback": True, "ignore_merges": True},
        {"type": "WordPiece", "vocab": vocabulary, "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
        {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
        {"type": "Unigram", "unk_id": 0, "vocab": [[piece, -float(i)] for piece, i in vocabulary.items()]},
    ]
    pre = [None, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, {"type": "BertPreTokenizer"},
           {"type": "Split", "pattern": {"Regex": r"\s+(?!\S)|\s+|\w+"}, "behavior": "Isolated", "invert": False}]
    for part, splitter in itertools.product(models, pre):
        yield json.dumps({"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": splitter,
                          "post_processor": None, "decoder": None, "model": part}).encode()
    base = {"version": "1.0", "added_tokens": added, "model": models[0]}
    for key, value in [("model", None), ("model", {}), ("model", {"type": "BPE", "vocab": [], "merges": 1}), ("added_tokens", [{"id": -1}]),
                       ("added_tokens", [dict(added[0], id=1 << 40)]), ("normalizer", {"type": "Lowercase"}),
                       ("model", dict(models[0], vocab={"a": 1 << 31})), ("model", dict(models[0], merges=["x y", "a"])),
                       ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a+)+$("}, "behavior": "Isolated", "invert": False})]:
        yield json.dumps(dict(base, **{key: value})).encode()
    yield b""
    yield b"[" * 5000
    yield b'{"model":'


SEEDS = {"gguf_fuzz": gguf_seeds, "template_fuzz": template_seeds, "tokenizer_fuzz": tokenizer_seeds}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SEEDS:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS[sys.argv[1]]():
        path = folder / f"seed-{hashlib.sha1(seed).hexdigest()}"
        if not path.exists():
            path.write_bytes(seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
