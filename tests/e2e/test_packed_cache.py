"""The cache of packed weights, as people meet it."""
import subprocess

import pytest

ASK = ["-p", "Why is the sky blue?", "--max-tokens", "8", "--context", "512"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "packed"


def files(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_the_second_start_maps_what_the_first_packed(quire, smollm2, folder):
    plain = quire.json("run", smollm2, *ASK, "--packed-cache", "off")
    assert not folder.exists()
    first = quire.run("run", smollm2, *ASK, "--packed-cache", folder)
    assert first.returncode == 0 and first.stdout == plain["text"] + "\n" and "packed cache" not in first.stderr
    (name,) = files(folder)
    inode = (folder / name).stat().st_ino
    second = quire.json("run", smollm2, *ASK, "--packed-cache", folder)
    assert second["token_ids"] == plain["token_ids"]
    assert files(folder) == [name] and (folder / name).stat().st_ino == inode


def test_the_environment_names_the_folder_or_switches_it_off(quire, smollm2, folder, tmp_path):
    quire.ok("run", smollm2, *ASK, env={"QUIRE_PACKED": "off", "HOME": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []
    quire.ok("run", smollm2, *ASK, env={"QUIRE_PACKED": str(folder), "HOME": str(tmp_path)})
    assert len(files(folder)) == 1


def test_a_damaged_file_is_told_and_packed_anew(quire, smollm2, folder):
    options = ["run", smollm2, *ASK, "--packed-cache", folder]
    good = quire.ok(*options)
    (name,) = files(folder)
    with open(folder / name, "r+b") as file:
        file.truncate(100_000)
    told = quire.run(*options)
    assert told.returncode == 0 and told.stdout == good
    assert "packed cache: " in told.stderr and name in told.stderr and "packed anew" in told.stderr
    assert "packed cache" not in quire.run(*options).stderr


def test_a_folder_that_cannot_be_written_is_told(quire, smollm2, tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = quire.run("run", smollm2, *ASK, "--packed-cache", tmp_path / "file" / "packed")
    assert done.returncode == 0 and done.stdout
    assert "packed cache: " in done.stderr and "packed in memory" in done.stderr


def test_starts_at_the_same_time_are_safe(quire, smollm2, folder):
    command = [quire.binary, "run", str(smollm2), *ASK, "--packed-cache", str(folder)]
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {process.communicate(timeout=600)[0] for process in running}
    assert len(answers) == 1 and all(process.returncode == 0 for process in running)
    assert len(files(folder)) == 1
    quire.ok("cache", "--packed-cache", folder, "--verify")


def test_cache_lists_verifies_and_clears(quire, smollm2, folder):
    empty = quire.json("cache", "--packed-cache", folder)
    assert empty == {"folder": str(folder), "bytes": 0, "files": []}
    quire.ok("run", smollm2, *ASK, "--packed-cache", folder)
    (name,) = files(folder)
    (told,) = quire.json("cache", "--packed-cache", folder)["files"]
    assert told["path"] == str(folder / name) and told["bytes"] == (folder / name).stat().st_size
    assert told["fault"] is None and told["model"]
    assert "good" in quire.ok("cache", "--packed-cache", folder, "--verify")
    with open(folder / name, "r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)[0]
        file.seek(50_000_000)
        file.write(bytes([byte ^ 1]))
    done = quire.run("cache", "--packed-cache", folder, "--verify")
    assert done.returncode == 1 and "is damaged" in done.stdout
    (folder / ".packing-left").write_bytes(bytes(1000))
    assert quire.json("cache", "--packed-cache", folder, "--clear")["files_removed"] == 2
    assert files(folder) == []
