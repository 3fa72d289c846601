# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random changes of JSON: of its tree, which keep most of its sense, and of its bytes, which keep little."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

#: What is at the edge of something, or of another kind than asked for.
VALUES = [
    *[None, True, False, 0, 1, 2, 3, 4, 7, -1, 2**31 - 1, 2**31, 2**63, 2**64, 10**30, -(2**63)],
    *[0.0, 0.5, -0.0, 1e-300, 5e-324, 1e300, float("inf"), float("nan")],
    *["", "*", "0", "1", "-1", "99", "9" * 30, "F", "B", "I", "W", "BI", "BW", "stage", "MB", "PASS", "_block"],
    *["é", "日本", "a b", 'a"b', "a\\b", "a\nb", "\0", "\x7f", "\ud800", "%s", "@x", "piper.split", "x" * 1000],
    *[[], {}, [[]], [{}], [0], [0, 1], [1, 0], [0, 0], {"stage": 0}, {"stage": 1}, {"PASS": "F"}, {"PASS": "W"}],
    *[{"MB": 0}, {"MB": "*"}, {"stage": None}, {"": 0}, {"x" * 100: 1}, [[{}], [{}]], {"pp": 0}],
]
#: What makes sense in many places, by kind.
LIKELY = {
    bool: [True, False],
    int: [0, 1, 2, 3, 4],
    float: [1e-5, 1e-4, 25.0, 1e6],
    str: ["stage", "MB", "PASS", "_block", "F", "B", "*", "0", "1", "pp_stream", "other"],
    list: [[0], [1], [0, 1], [1, 0], [2, 3], [0, 1, 2, 3], [{"stage": 0}], [[{"stage": 0}], [{"stage": 1}]]],
    dict: [
        {},
        {"stage": 0},
        {"stage": 1},
        {"PASS": "F"},
        {"PASS": "B", "stage": 0},
        {"MB": 0},
        {"MB": 1},
        {"_block": 1},
    ],
}
FIELDS = [
    *["op", "filter", "filters", "devices", "device", "stream", "dim_name", "num_microbatches", "bucket_size", "dim"],
    *[
        "shard_params",
        "shard_grads",
        "shard_optimizer",
        "gather_stream",
        "reduce_stream",
        "sms",
        "where",
        "stage",
        "MB",
    ],
]
OPERATIONS = ["split", "place", "replicate", "shard", "order", "overlap", "recompute", "save", "check", "mesh", ""]
BYTES = [
    b'"',
    b"\\",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b"0",
    b"-",
    b"e",
    b"\xff",
    b"\x00",
    b"\xed\xa0\x80",
    b"\\u0000",
]


def mutate(generator: random.Random, entries: list[Any]) -> bytes:
    """A file like that of `entries`, with one to eight changes."""
    entries = copy.deepcopy(entries)
    for _ in range(generator.choice([1, 1, 2, 2, 3, 8])):
        change = generator.choices(CHANGES, [8, 1, 1, 5, 1])[0]
        change(generator, entries)
    data = json.dumps(entries, ensure_ascii=generator.random() < 0.5).encode(errors="surrogatepass")
    if generator.random() < 0.05:
        data = _change_bytes(generator, bytearray(data))
    return data


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a tree."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, item in items:
        found.append((value, key))
        found += _places(item)
    return found


def _change_value(generator: random.Random, entries: list[Any]) -> None:
    if places := _places(entries):
        container, key = generator.choice(places)
        likely = LIKELY.get(type(container[key]), VALUES)
        container[key] = copy.deepcopy(generator.choice(likely if generator.random() < 0.85 else VALUES))


def _nudge(generator: random.Random, entries: list[Any]) -> None:
    """Changes a number a little, or a character of a text."""
    places = [(c, k) for c, k in _places(entries) if isinstance(c[k], (int, float, str)) and not isinstance(c[k], bool)]
    if not places:
        return
    container, key = generator.choice(places)
    value = container[key]
    if isinstance(value, str):
        at = generator.randrange(len(value) + 1)
        container[key] = value[:at] + generator.choice(["", "x", "é", '"', "*", "7"]) + value[at + 1 :]
    else:
        container[key] = generator.choice([value + 1, value - 1, value * 2, -value])


def _change_field(generator: random.Random, entries: list[Any]) -> None:
    containers = [c[k] for c, k in _places(entries) if isinstance(c[k], dict)]
    if not containers:
        return
    container = generator.choice(containers)
    names = list(container)
    match generator.choice(["add", "rename", "remove", "op"]):
        case "add":
            container[generator.choice(FIELDS)] = copy.deepcopy(generator.choice(VALUES))
        case "rename" if names:
            container[generator.choice(FIELDS)] = container.pop(generator.choice(names))
        case "remove" if names:
            del container[generator.choice(names)]
        case "op":
            container["op"] = generator.choice(OPERATIONS)


def _change_entries(generator: random.Random, entries: list[Any]) -> None:
    """Removes, repeats or moves an entry of the file or an element of a list inside."""
    lists = [entries] + [c[k] for c, k in _places(entries) if isinstance(c[k], list)]
    chosen = generator.choice([entries, generator.choice(lists)])
    if not chosen:
        return
    index = generator.randrange(len(chosen))
    match generator.choice(["remove", "repeat", "move"]):
        case "remove":
            del chosen[index]
        case "repeat":
            chosen.insert(generator.randrange(len(chosen) + 1), copy.deepcopy(chosen[index]))
        case "move":
            chosen.insert(generator.randrange(len(chosen)), chosen.pop(index))


def _graft(generator: random.Random, entries: list[Any]) -> None:
    """Puts a part of the tree in the place of another."""
    places = _places(entries)
    if len(places) < 2:
        return
    (source, source_key), (target, target_key) = generator.sample(places, 2)
    target[target_key] = copy.deepcopy(source[source_key])


def _change_bytes(generator: random.Random, data: bytearray) -> bytes:
    for _ in range(generator.randrange(1, 4)):
        at = generator.randrange(len(data) + 1)
        match generator.choice(["cut", "insert", "overwrite", "nest"]):
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = generator.choice(BYTES)
            case "overwrite":
                data[at : at + 1] = bytes([generator.randrange(256)])
            case "nest":
                data[at:at] = generator.choice([b"[", b'{"a":']) * generator.choice([10, 900, 990, 5000])
    return bytes(data)


CHANGES = [_change_value, _nudge, _change_field, _change_entries, _graft]
