"""bench kernels, and the page that bench/kernels makes of it. Nothing here depends on how fast anything was."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--set-mb", "4", "--in", "256", "--depth", "300", "--rounds", "1"]


def test_selection_structure_and_shares(quire):
    told = quire.json("bench", "kernels", *TINY, "--types", "Q4_0,F16", "--kv-types", "int8", "--rows", "1,4", "--threads", "1")
    assert told["rounds"] == 1 and told["in"] == 256 and told["set_bytes"] == 4_000_000
    isas = list(dict.fromkeys(row["isa"] for row in told["kernels"]))
    cells = [(row["kernel"], row.get("type"), row["rows"], row["isa"]) for row in told["kernels"]]
    assert len(set(cells)) == len(cells)
    for isa in isas:
        for rows in [1, 4]:
            for kernel in ["matmul", "matmul_wide", "matmul_float"]:
                assert (kernel, "Q4_0", rows, isa) in cells
            assert ("matmul_float", "F16", rows, isa) in cells and ("matmul", "F16", rows, isa) not in cells
        for kernel in ["quantize", "quantize_wide", "rms_norm"]:
            assert (kernel, None, 1, isa) in cells
        for kernel, rows in [("attention_decode", 1), ("attention_prefill", 128), ("attention_shared", 16)]:
            assert (kernel, "int8", rows, isa) in cells
    assert len(cells) == len(isas) * (3 * 2 + 2 + 3 + 3)


def test_figures_follow_from_times_and_ceilings(quire):
    told = quire.json("bench", "kernels", *TINY[:-1], "3", "--kernels", "matmul,rms_norm,attention_decode",
                      "--types", "Q8_0", "--kv-types", "f16", "--rows", "2", "--threads", "1")
    ceilings = {(c["ceiling"], c["isa"], c["threads"]): c.get("gb_per_s") or c["gop_per_s"] for c in told["ceilings"]}
    for rate in ceilings.values():
        assert 0 < rate["min"] <= rate["median"] <= rate["max"]
    for isa in {row["isa"] for row in told["kernels"]}:
        assert ("memory_read", isa, 1) in ceilings and ("memory_read", isa, told["usable_cpus"]) in ceilings
    for row in told["kernels"]:
        time = row["time_us"]
        assert 0 < time["min"] <= time["median"] <= time["max"]
        assert row["gb_per_s"] == pytest.approx(row["bytes"] / time["median"] * 1e-3)
        bound = ceilings[row["bound"], row["isa"], 1]["median"]
        reached = row["gop_per_s"] if row["bound"].endswith(("dot", "fma")) else row["gb_per_s"]
        assert row["share"] > 0 and row["share"] == pytest.approx(reached / bound)
        if row["kernel"] == "matmul":
            assert row["bytes"] == told["out"] * 256 / 32 * 34 and row["operations"] == 2 * 2 * told["out"] * 256
        if row["kernel"] == "rms_norm":
            assert row["bound"] == "cache_read" and "operations" not in row


def test_names_are_taken_once_and_isas_as_asked(quire):
    told = quire.json("bench", "kernels", *TINY, "--kernels", "rms_norm,rms_norm", "--isa", "scalar,scalar", "--threads", "1,1")
    assert [(row["kernel"], row["isa"]) for row in told["kernels"]] == [("rms_norm", "scalar")]


def test_time_ends_the_rounds(quire):
    told = quire.json("bench", "kernels", "--set-mb", "4", "--kernels", "rms_norm", "--threads", "1", "--seconds", "0.001")
    assert told["rounds"] == 1


def test_as_a_table(quire):
    text = quire.ok("bench", "kernels", *TINY, "--kernels", "matmul", "--types", "Q4_K", "--rows", "3", "--threads", "1")
    assert "memory_read" in text and "int8_dot" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("matmul ")]
    assert rows and all(row[1:3] == ["Q4_K", "3"] for row in rows)


@pytest.mark.parametrize("options, name, value, limit", [
    (["--kernels", "matmul,gemm"], "--kernels", "'gemm'", "attention_decode"),
    (["--isa", "mmx"], "--isa", "'mmx'", "scalar"),
    (["--types", "Q4_0,,Q8_0"], "--types", "''", "MXFP4"),
    (["--types", "Q9"], "--types", "'Q9'", "Q6_K"),
    (["--kv-types", "f7"], "--kv-types", "'f7'", "int4"),
    (["--rows", "0"], "--rows", "0", "[1, 4096]"),
    (["--threads", "241"], "--threads", "241", "[0, 240]"),
    (["--in", "16"], "--in", "16", "[32, 65536]"),
    (["--in", "320"], "--in", "320", "256"),
    (["--in", "48", "--types", "F32"], "--in", "48", "32"),
    (["--depth", "255"], "--depth", "255", "[256, 1048576]"),
    (["--set-mb", "0"], "--set-mb", "0", "[1, 65536]"),
    (["--seconds", "0"], "--seconds", "0", "(0, 86400]"),
    (["--rounds", "1001"], "--rounds", "1001", "[1, 1000]"),
    (["--rounds", "2", "--seconds", "3"], "--rounds", "--seconds", ""),
    (["--kernels", "matmul", "--types", "F16"], "matmul", "F16", "codes"),
])
def test_refuses(quire, options, name, value, limit):
    done = quire.run("bench", "kernels", *options)
    assert done.returncode == 2 and done.stdout == ""
    assert name in done.stderr and value in done.stderr and limit in done.stderr, done.stderr


def test_page_and_roofline(quire, tmp_path):
    page = tmp_path / "kernels-here.md"
    run = subprocess.run([sys.executable, ROOT / "bench/kernels", page, "--quire", quire.binary, "--json", tmp_path / "run.json", "--",
                          *TINY, "--types", "Q4_0,Q6_K", "--kv-types", "f16", "--rows", "1,4", "--threads", "1"],
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    told, text = json.loads((tmp_path / "run.json").read_text()), page.read_text()
    for isa in {row["isa"] for row in told["kernels"]}:
        figure = tmp_path / f"kernels-here-{isa}-1.svg"
        assert f"({figure.name})" in text and figure.read_text().count("<circle") > 12
    for row in told["kernels"]:
        assert f"{100 * row['share']:.0f} % of {row['bound']}" in text
