"""The rivals that Quire is measured against: their builds, and model files for all."""
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUIRE = Path(os.environ.get("QUIRE_BIN", ROOT / "build/release/bin/quire"))
VERSION = "0.3.36"
IK_VERSION = "0.1.5"
# clang, like Quire itself: g++ 12 miscompiles llama.cpp's tile kernels (illegal instruction at the first product).
COMPILER = ["-DCMAKE_C_COMPILER=clang-19", "-DCMAKE_CXX_COMPILER=clang++-19", "-DGGML_OPENMP=OFF"]
FLAGS = {
    "native": ["-DGGML_NATIVE=ON"],
    "avx2": ["-DGGML_NATIVE=OFF", "-DGGML_AVX=ON", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_BMI2=ON"],
}
PROGRAMS = ["llama-bench", "llama-batched-bench"]


def check(command, **options):
    """stdout of a program that must succeed."""
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if run.returncode != 0:
        sys.exit(f"{Path(sys.argv[0]).name}: {command[0]} failed: {(run.stderr or run.stdout).strip()[-600:]}")
    return run.stdout


def model_path(model):
    """A file, or a name that tools/get_model knows."""
    return model if Path(model).exists() else check([ROOT / "tools/get_model", model]).strip()


def rivals_folder():
    return Path(os.environ.get("QUIRE_RIVALS") or Path.home() / ".cache/quire/rivals")


def ik_python():
    """A Python with the wheel of ik_llama.cpp, in an environment of its own."""
    environment = rivals_folder() / f"ik-llama-cpp-python-{IK_VERSION}"
    python = environment / "bin/python"
    if not (environment / "installed").exists():
        print(f"fetching ik-llama-cpp-python {IK_VERSION}", file=sys.stderr)
        check([sys.executable, "-m", "venv", environment])
        check([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"ik-llama-cpp-python=={IK_VERSION}"])
        (environment / "installed").touch()
    return python


def source_folder(cache):
    folder = cache / f"llama_cpp_python-{VERSION}"
    if not folder.exists():
        print(f"fetching llama-cpp-python {VERSION}", file=sys.stderr)
        check([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "-d", cache,
               f"llama-cpp-python=={VERSION}"])
        with tarfile.open(next(cache.glob(f"llama_cpp_python-{VERSION}*.tar.gz"))) as archive:
            archive.extractall(cache)
    return folder / "vendor/llama.cpp"


def rival_binary(flavour, program):
    """One of PROGRAMS of llama.cpp, built from the source package of llama-cpp-python when it is not there yet."""
    cache = rivals_folder()
    binary = cache / f"llama.cpp-{VERSION}-{flavour}/bin/{program}"
    if not binary.exists():
        cache.mkdir(parents=True, exist_ok=True)
        source = source_folder(cache)
        build = binary.parent.parent
        print(f"building llama.cpp ({flavour}), some minutes", file=sys.stderr)
        check(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF",
               "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
               "-DLLAMA_BUILD_SERVER=OFF", *COMPILER, *FLAGS[flavour]])
        check(["cmake", "--build", build, "--target", *PROGRAMS])
    return binary
