# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Program folders: complete or absent, and nothing is used before it is checked."""

import json
import os

import piper
import pytest
from piper import folder

FILES = {"plan.bin": b"plan", "kernels/f.o": b"\x7fELF"}


@pytest.fixture
def saved(tmp_path):
    folder.write(tmp_path / "p", {"steps": 3}, FILES)
    return tmp_path / "p"


def test_round_trip(saved):
    manifest, files = folder.read(saved)
    assert files == FILES
    assert manifest["steps"] == 3


def test_saving_again_replaces(saved):
    folder.write(saved, {"steps": 4}, {"plan.bin": b"other"})
    manifest, files = folder.read(saved)
    assert (manifest["steps"], files) == (4, {"plan.bin": b"other"})
    assert os.listdir(saved.parent) == ["p"]


def test_other_folders_are_left_alone(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("")
    with pytest.raises(piper.ProgramError, match="exists and is not a program folder"):
        folder.write(tmp_path / "photos", {}, FILES)
    assert os.listdir(tmp_path / "photos") == ["a.jpg"]


def test_a_failed_save_keeps_the_old_program(saved, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(piper.ProgramError, match="No space left on device"):
        folder.write(saved, {"steps": 9}, FILES)
    monkeypatch.undo()
    assert folder.read(saved)[0]["steps"] == 3
    assert os.listdir(saved.parent) == ["p"]


def damage_manifest(change):
    def damage(path):
        manifest = json.loads((path / "manifest.json").read_text())
        change(manifest)
        manifest["sha256"] = folder._manifest_digest(manifest)
        (path / "manifest.json").write_text(json.dumps(manifest))

    return damage


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda p: (p / "plan.bin").write_bytes(b"plam"), "plan.bin: damaged: its content is not what was saved"),
        (lambda p: (p / "plan.bin").write_bytes(b"pla"), "plan.bin: damaged: expected 4 bytes, got 3"),
        (lambda p: (p / "kernels/f.o").unlink(), "f.o: No such file"),
        (lambda p: (p / "manifest.json").unlink(), "expected a program folder"),
        (lambda p: (p / "manifest.json").write_text("{"), "damaged: expected JSON"),
        (
            lambda p: (p / "manifest.json").write_text((p / "manifest.json").read_text().replace("3", "4", 1)),
            "manifest.json: damaged: its content is not what was saved",
        ),
        (damage_manifest(lambda m: m.update(version=2)), "expected version 1, got 2"),
        (damage_manifest(lambda m: m.update(format="x")), "expected the manifest of a piper program"),
        (damage_manifest(lambda m: m.update(files={"../x": {}})), "unexpected file entry '../x'"),
        (damage_manifest(lambda m: m.update(files={"/etc/passwd": {}})), "unexpected file entry '/etc/passwd'"),
    ],
)
def test_damage_is_named(saved, damage, message):
    damage(saved)
    with pytest.raises(piper.ProgramError, match=message):
        folder.read(saved)


def test_a_link_is_followed(tmp_path):
    os.symlink(tmp_path / "real", tmp_path / "link")
    folder.write(tmp_path / "link", {"steps": 3}, FILES)
    assert os.path.islink(tmp_path / "link")
    assert folder.read(tmp_path / "real")[1] == FILES


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "plan/x"])
def test_impossible_paths_are_one_error(tmp_path, name):
    (tmp_path / "plan").write_text("")
    with pytest.raises(piper.ProgramError):
        folder.write(f"{tmp_path}/{name}", {}, FILES)
    with pytest.raises(piper.ProgramError):
        folder.read(f"{tmp_path}/{name}")
    assert os.listdir(tmp_path) == ["plan"]
