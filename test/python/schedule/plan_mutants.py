# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans with one mistake, of six kinds. Lifetimes of buffers are told anew, so that a mutant says nothing wrong about itself."""

from __future__ import annotations

import random
from dataclasses import replace

from planned_text import COLLECTIVES, Action, Address, Entry, Plan

KINDS = (
    "two sends swapped",
    "a wait dropped",
    "collectives of a class reordered",
    "memory freed early",
    "a reduction dropped or doubled",
    "equal messages crossed",
)
REDUCTIONS = ("accumulate", "all_reduce", "reduce_scatter")


def make_mutant(kind: str, plan: Plan, rng: random.Random) -> list[Entry] | None:
    """A mutant, or None where what was drawn has no place in this plan or changes nothing."""
    entries = list(plan.entries)
    number = rng.randrange(len(entries))
    if kind == "a reduction dropped or doubled":
        mutants = _reduction(entries, number, rng)
    else:
        one = {
            "two sends swapped": lambda entry: _swapped(entry, ("send",), rng),
            "a wait dropped": lambda entry: _without_wait(entry, rng),
            "collectives of a class reordered": lambda entry: _swapped(entry, COLLECTIVES, rng),
            "memory freed early": lambda entry: _freed_early(entry, rng),
            "equal messages crossed": lambda entry: _crossed(entry, rng),
        }[kind](entries[number])
        mutants = None if one is None else [*entries[:number], one, *entries[number + 1 :]]
    if mutants is None:
        return None
    mutants = [entry.with_lifetimes() for entry in mutants]
    return None if plan.text(mutants) == plan.text(entries) else mutants


def without_each_wait(plan: Plan) -> list[list[Entry]]:
    """All mutants without one wait or release."""
    result = []
    for number, entry in enumerate(plan.entries):
        for at in _places(entry, ("wait", "release")):
            actions = [_nothing(action) if i == at else action for i, action in enumerate(entry.actions)]
            result.append([*plan.entries[:number], entry.with_actions(actions), *plan.entries[number + 1 :]])
    return result


def _places(entry: Entry, opcodes) -> list[int]:
    return [i for i, action in enumerate(entry.actions) if action.opcode in opcodes]


def _nothing(action: Action) -> Action:
    """Does nothing, in the place of an action that is taken out."""
    texts = ("      piper.plan.fill_zero ", f" bytes 4 on @{action.stream}")
    return Action("fill_zero", texts, (Address("workspace", 0),), action.stream, None)


def _swapped(entry: Entry, opcodes, rng: random.Random) -> Entry | None:
    """Two that follow each other closely change places: where they stand, or both behind what the second one waits for."""
    places = _places(entry, opcodes)
    if len(places) < 2:
        return None
    first = rng.randrange(len(places) - 1)
    second = min(first + rng.choice((1, 1, 2, 3)), len(places) - 1)
    a, b = places[first], places[second]
    actions = list(entry.actions)
    if rng.random() < 0.5:
        actions[a], actions[b] = actions[b], actions[a]
    else:
        actions.insert(b, actions.pop(a))
    return entry.with_actions(actions)


def _without_wait(entry: Entry, rng: random.Random) -> Entry | None:
    places = _places(entry, ("wait", "release"))
    if not places:
        return None
    at = rng.choice(places)
    actions = list(entry.actions)
    actions[at] = _nothing(actions[at])
    return entry.with_actions(actions)


def _freed_early(entry: Entry, rng: random.Random) -> Entry | None:
    """Another buffer comes to where one is still needed, or what guards its memory comes too late."""
    if rng.random() < 0.3:
        return _late_guard(entry, rng)
    if len(entry.buffers) < 2:
        return None
    mover, host = rng.sample(range(len(entry.buffers)), 2)
    a, b = entry.buffers[host], entry.buffers[mover]
    if b.first < a.last and rng.random() < 0.7:
        return None  # most of the time not at the same time by the text
    shift = a.offset - b.offset
    if shift == 0 or a.offset + b.bytes > entry.arena:
        return None

    def move(action: Action) -> Action:
        return replace(
            action,
            addresses=tuple(
                replace(address, offset=address.offset + shift) if address.buffer == mover else address
                for address in action.addresses
            ),
        )

    buffers = list(entry.buffers)
    buffers[mover] = replace(b, offset=a.offset)
    return replace(entry, buffers=tuple(buffers)).with_actions(map(move, entry.actions))


def _late_guard(entry: Entry, rng: random.Random) -> Entry | None:
    """A release or wait moves behind some of the actions of its stream."""
    places = _places(entry, ("wait", "release"))
    if not places:
        return None
    at = rng.choice(places)
    behind = [i for i in range(at + 1, len(entry.actions)) if entry.actions[i].stream == entry.actions[at].stream]
    if not behind:
        return None
    target = behind[min(rng.randrange(3), len(behind) - 1)]
    actions = list(entry.actions)
    actions.insert(target, actions.pop(at))
    return entry.with_actions(actions)


def _reduction(entries: list[Entry], number: int, rng: random.Random) -> list[Entry] | None:
    """Of a collective all members leave it out or do it twice; now and then one class only."""
    places = _places(entries[number], REDUCTIONS)
    if not places:
        return None
    chosen = entries[number].actions[rng.choice(places)]
    drops, alone = rng.random() < 0.5, rng.random() < 0.2

    def change(entry: Entry) -> Entry:
        actions: list[Action] = []
        for action in entry.actions:
            same = action is chosen or (
                not alone
                and chosen.opcode != "accumulate"
                and (action.opcode, action.communicator, action.position)
                == (chosen.opcode, chosen.communicator, chosen.position)
            )
            actions += ([_nothing(action)] if drops else [action, action]) if same else [action]
        return entry.with_actions(actions)

    return [change(entry) for entry in entries]


def _crossed(entry: Entry, rng: random.Random) -> Entry | None:
    """Two messages of as many bytes: each has the other's memory, or the other's channel."""
    opcode = rng.choice(("send", "recv"))
    places = _places(entry, (opcode,))
    if len(places) < 2:
        return None
    first = rng.randrange(len(places) - 1)
    a, b = places[first], places[min(first + rng.choice((1, 1, 2, 3)), len(places) - 1)]
    actions = list(entry.actions)
    if actions[a].bytes != actions[b].bytes:
        return None
    if rng.random() < 0.7:
        actions[a] = replace(actions[a], addresses=entry.actions[b].addresses)
        actions[b] = replace(actions[b], addresses=entry.actions[a].addresses)
    else:
        channels = actions[a].communicator, actions[b].communicator
        for at, old, new in ((a, *channels), (b, *reversed(channels))):
            texts = tuple(text.replace(f"through @{old} on", f"through @{new} on") for text in actions[at].texts)
            actions[at] = replace(actions[at], texts=texts)
    return entry.with_actions(actions)
