"""Compiles a regular expression and a vocabulary to an automaton over classes of tokens.

It runs in a process of its own, within bounds, since an expression may have more states than any
machine can hold; `text/forms.py` runs it. The expression becomes an automaton over bytes
(outlines-core), which is made as small as it can be. Then every token of the vocabulary is followed
from every state at once, along a tree of their bytes.
"""

import gc
import io
import signal
import sys

import numpy as np

from rho_eos.text.template_worker import limit_memory

#: What stands around every text for the compiler, and in no text. The compiler searches: behind a
#: match it forgets whatever would be longer (of `a|ab` the second), and it looks for beginnings
#: everywhere, which takes more states than there is memory for. With a sign that is in no text
#: neither does harm.
SENTINEL = "\x00"
MOST_STATES = 20_000
MOST_EDGES = 500_000


class TooLargeError(Exception):
    """It has more states than are useful."""


def main(seconds: int, megabytes: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.alarm(seconds)
    gc.disable()
    answers, sys.stdout = sys.stdout, sys.stderr
    asked = np.load(io.BytesIO(sys.stdin.buffer.read()))
    limit_memory(megabytes)
    try:
        table, accepting = over_bytes(asked["regex"].tobytes().decode())
        following, classes = over_tokens(table, asked["data"], asked["lengths"])
        parts = trimmed(following, accepting, classes)
        answer = dict(zip(("table", "accepting", "classes"), parts, strict=True))
    except TooLargeError:
        answer = {"error": np.array("size")}
    except MemoryError:
        answer = {"error": np.array("memory")}
    except ValueError as error:
        empty = "Found no transitions" in str(error)  # it parses, and accepts nothing
        kind = "empty" if empty else "syntax"
        answer = {"error": np.array(kind), "says": np.array(str(error)[:500])}
    written = io.BytesIO()
    np.savez(written, **answer)  # type: ignore[arg-type]
    answers.buffer.write(written.getvalue())


def over_bytes(regex: str) -> tuple[np.ndarray, np.ndarray]:
    """(states, 256) where each byte leads, -1: nowhere, and (states,) which states accept."""
    from outlines_core import Index, Vocabulary

    every = Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
    index = Index(f"{SENTINEL}(?:{regex}){SENTINEL}", every)
    found = index.get_transitions()
    if len(found) > MOST_STATES:
        raise TooLargeError
    numbers = {index.get_initial_state(): 0}
    for state in found:
        numbers.setdefault(state, len(numbers))
    table = np.full((len(numbers), 256), -1, dtype=np.int64)
    for state, steps in found.items():
        for byte, following in steps.items():
            if byte < 256:
                table[numbers[state], byte] = numbers.setdefault(following, len(numbers))
    final = np.zeros(len(table), dtype=bool)
    final[[numbers[state] for state in index.get_final_states()]] = True
    sign = ord(SENTINEL)
    behind = table[:, sign].copy()
    accepting = (behind >= 0) & final[behind]
    table[:, sign] = -1
    return smallest(*from_start(table, accepting, int(behind[0])))


def smallest(table: np.ndarray, accepting: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same language in as few states as there can be; state 0 stays the start."""
    useful = accepting
    while True:  # from where is anything accepted?
        more = useful | (useful[table] & (table >= 0)).any(1)
        if (more == useful).all():
            break
        useful = more
    table = np.where((table >= 0) & useful[table], table, -1)
    table, accepting = from_start(table, accepting, 0)
    columns = np.unique(table, axis=1)
    random = np.random.default_rng(0).integers(1, 2**63, columns.shape[1], dtype=np.uint64) | 1
    kinds = accepting.astype(np.int64)
    while True:  # states differ that lead to states that differ
        ahead = np.where(columns >= 0, kinds[columns] + 1, 0).astype(np.uint64)
        digest = (ahead * random).sum(1, dtype=np.uint64)
        order = np.lexsort((digest, kinds))
        differs = (np.diff(digest[order]) != 0) | (np.diff(kinds[order]) != 0)
        refined = np.empty_like(kinds)
        refined[order] = np.cumsum(np.concatenate(([False], differs)))
        if refined.max() == kinds.max():
            break
        kinds = refined
    _, first, kinds = np.unique(kinds, return_index=True, return_inverse=True)
    merged = np.where(table[first] >= 0, kinds[table[first]], -1)
    return from_start(merged, accepting[first], int(kinds[0]))


def from_start(
    table: np.ndarray, accepting: np.ndarray, start: int
) -> tuple[np.ndarray, np.ndarray]:
    """The states that are reached from the start, which becomes 0."""
    order, seen = [start], {start}
    for state in order:
        for following in np.unique(table[state]).tolist():
            if following >= 0 and following not in seen:
                seen.add(following)
                order.append(following)
    number = np.full(len(table) + 1, -1)
    number[order] = np.arange(len(order))
    return number[table[order]], accepting[order]


class Tree:
    """The bytes of all tokens: the children of a node follow each other."""

    def __init__(self, data: np.ndarray, lengths: np.ndarray) -> None:
        starts = np.cumsum(lengths) - lengths
        self.node = np.zeros(len(lengths), dtype=np.int64)  # of each token
        parents, letters, count = [np.array([-1])], [np.array([-1])], 1
        tokens, depth = np.flatnonzero(lengths > 0), 0
        while len(tokens):
            keys = self.node[tokens] * 256 + data[starts[tokens] + depth]
            found, which = np.unique(keys, return_inverse=True)
            self.node[tokens] = count + which
            parents.append(found // 256)
            letters.append(found % 256)
            count, depth = count + len(found), depth + 1
            tokens = tokens[lengths[tokens] > depth]
        self.letter = np.concatenate(letters)
        nodes = np.arange(count + 1)
        parent = np.concatenate(parents)
        self.first = np.searchsorted(parent, nodes[:-1])
        self.children = np.searchsorted(parent, nodes[:-1], side="right") - self.first
        self.is_token = np.zeros(count, dtype=bool)
        self.is_token[self.node[lengths > 0]] = True

    def follow(self, table: np.ndarray, state: int) -> tuple[np.ndarray, np.ndarray]:
        """The nodes of tokens that may come in a state, and the states behind them."""
        nodes, states = np.array([0]), np.array([state])
        found = []
        while len(nodes):
            count = self.children[nodes]
            total = int(count.sum())
            offsets = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
            nodes = np.repeat(self.first[nodes], count) + offsets
            states = table[np.repeat(states, count), self.letter[nodes]]
            alive = states >= 0
            nodes, states = nodes[alive], states[alive]
            here = self.is_token[nodes]
            found.append((nodes[here], states[here]))
        both = zip(*found, strict=True)
        together = [np.concatenate(each) for each in both]
        return together[0], together[1]


def over_tokens(
    table: np.ndarray, data: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(states, classes) where each class of tokens leads, and (vocabulary,) the class of each."""
    tree = Tree(data, lengths)
    random = np.random.default_rng(1)
    of_state, of_next = random.integers(1, 2**63, (2, len(table)), dtype=np.uint64) | 1
    digest = np.zeros(len(tree.is_token), dtype=np.uint64)  # the same for the same column of steps
    reached, order = {0}, [0]
    for state in order:  # those that whole tokens lead to
        nodes, states = tree.follow(table, state)
        digest[nodes] += of_state[state] * of_next[states]
        for following in np.unique(states).tolist():
            if following not in reached:
                reached.add(following)
                order.append(following)
    used = digest[tree.node] != 0
    _, example, kinds = np.unique(digest[tree.node[used]], return_index=True, return_inverse=True)
    classes = np.full(len(lengths), -1)
    classes[used] = kinds
    tokens = np.flatnonzero(used)[example]
    starts = np.cumsum(lengths) - lengths
    result = np.full((len(table), len(tokens)), -1)
    if result.size > 2**26:
        raise TooLargeError
    every = np.arange(len(table))
    for number, token in enumerate(tokens.tolist()):
        at = every
        for byte in data[starts[token] : starts[token] + lengths[token]].tolist():
            at = np.where(at >= 0, table[at, byte], -1)
        result[:, number] = at
    return result, classes


def trimmed(
    table: np.ndarray, accepting: np.ndarray, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Only states that tokens reach and from where they are accepted, and classes that remain."""
    if table.shape[1]:
        table, accepting = smallest(table, accepting)
    used, kinds = np.unique(table, axis=1, return_inverse=True)
    dead = np.flatnonzero((used < 0).all(0))
    if len(dead):  # a class that leads nowhere any more
        kinds = np.where(kinds.ravel() == dead[0], -1, kinds.ravel())
        kinds = np.where(kinds > dead[0], kinds - 1, kinds)
        used = np.delete(used, dead, axis=1)
    classes = np.where(classes >= 0, kinds.ravel()[classes] if len(kinds.ravel()) else -1, -1)
    if len(used) > MOST_STATES or (used >= 0).sum() > MOST_EDGES:
        raise TooLargeError
    return used, accepting, classes


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
