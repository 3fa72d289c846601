# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The folder of compiled objects: damage, sharing between processes, folders that cannot be written to."""

import multiprocessing
import os
import time

import pytest
from piper.cache import CompiledObject, ObjectCache, content_key

OBJECT = CompiledObject(b"\x7fELF code", {"symbol": "f", "workspace_bytes": 64})


def never():
    raise AssertionError("made again")


def test_made_once_and_kept(tmp_path):
    key = content_key("module", "cpu")
    assert ObjectCache(tmp_path).get_or_make(key, lambda: OBJECT) == OBJECT
    again = ObjectCache(tmp_path)
    assert again.get_or_make(key, never) == OBJECT
    assert (again.hits, again.misses) == (1, 0)


def test_keys_tell_parts_apart():
    assert content_key("ab", "c") != content_key("a", "bc")


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:60] + b"x" + b[61:], lambda b: b + b"x"]
)
def test_damaged_entries_are_made_again(tmp_path, damage):
    key = content_key("module")
    cache = ObjectCache(tmp_path)
    cache.get_or_make(key, lambda: OBJECT)
    path = tmp_path / key[:2] / key
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get_or_make(key, lambda: OBJECT) == OBJECT
    assert cache.misses == 2
    assert cache.get_or_make(key, never) == OBJECT


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = ObjectCache(blocked)
    with pytest.warns(RuntimeWarning, match="compiled objects are not kept"):
        assert cache.get_or_make(content_key("m"), lambda: OBJECT) == OBJECT
    assert cache.get_or_make(content_key("m"), lambda: OBJECT) == OBJECT
    assert cache.misses == 2


def test_a_failed_make_leaves_nothing(tmp_path):
    cache = ObjectCache(tmp_path)
    with pytest.raises(AssertionError):
        cache.get_or_make(content_key("m"), never)
    assert cache.get_or_make(content_key("m"), lambda: OBJECT) == OBJECT
    leftovers = [name for _, _, names in os.walk(tmp_path) for name in names if name.startswith(".new-")]
    assert leftovers == []


def _compete(folder, log, barrier):
    def make():
        with open(log, "a") as file:
            file.write("made\n")
        time.sleep(0.2)
        return OBJECT

    barrier.wait()
    assert ObjectCache(folder).get_or_make(content_key("shared"), make) == OBJECT


def test_two_processes_make_an_object_once(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    workers = [context.Process(target=_compete, args=(tmp_path / "cache", tmp_path / "log", barrier)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert (tmp_path / "log").read_text() == "made\n"
