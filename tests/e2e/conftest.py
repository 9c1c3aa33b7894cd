"""The real binary, run as people run it. Needs nothing but pytest; models and shared data where they are found.

QUIRE_BIN     the binary (default build/release/bin/quire)
QUIRE_MODELS  folder of models (default ~/.cache/quire/models)
QUIRE_PACKED  packed weights (default: a folder of this run alone)
QUIRE_SHARED  shared test data (default ../shared beside the repository)
"""
import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"


class Quire:
    """Runs the binary; every call has a time limit."""

    def __init__(self, binary):
        self.binary = str(binary)

    def run(self, *arguments, stdin=None, timeout=600, env=None):
        return subprocess.run([self.binary, *map(str, arguments)], input=stdin, capture_output=True, text=True,
                              timeout=timeout, env={**os.environ, **(env or {})},
                              stdin=subprocess.DEVNULL if stdin is None else None)

    def ok(self, *arguments, **options):
        """stdout of a run that must succeed."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments, **options):
        return json.loads(self.ok(*arguments, "--json", **options))


@pytest.fixture(scope="session", autouse=True)
def packed_folder(tmp_path_factory):
    """Where every binary that a test starts keeps packed weights."""
    os.environ.setdefault("QUIRE_PACKED", str(tmp_path_factory.mktemp("packed")))
    return Path(os.environ["QUIRE_PACKED"])


@pytest.fixture(scope="session")
def quire():
    binary = Path(os.environ.get("QUIRE_BIN", ROOT / "build/release/bin/quire"))
    if not binary.exists():
        pytest.skip(f"no binary at {binary}: run 'make build' or set QUIRE_BIN")
    return Quire(binary)


def model_path(name):
    folder = Path(os.environ.get("QUIRE_MODELS", Path.home() / ".cache/quire/models"))
    path = folder / name
    if not path.exists():
        pytest.skip(f"no model {path}: run 'tools/get_model all'")
    return path


@pytest.fixture(scope="session")
def smollm2():
    return model_path(SMOLLM2)


@pytest.fixture(scope="session")
def gemma3():
    return model_path("gemma-3-270m-q4_k_m.gguf")


def shared_path(name):
    path = Path(os.environ.get("QUIRE_SHARED", ROOT.parent / "shared")) / "data" / name
    if not path.exists():
        pytest.skip(f"no shared data at {path}: set QUIRE_SHARED")
    return path


@pytest.fixture(scope="session")
def goldens():
    """Golden prompts of a model by id: goldens("smollm2-135m")["chat-simple"]."""
    def load(model):
        with gzip.open(shared_path(f"goldens/{model}/prompts.jsonl.gz"), "rt") as lines:
            return {row["id"]: row for row in map(json.loads, lines)}
    return load
