"""A networkx.DiGraph whose nodes carry callables, run unchanged: nothing in this file knows plait.

    plait run examples/networkx_plain.py

A node's arguments are its predecessors' results, in the order in which its edges were added; the nodes without
successors are the outputs. From Python: ``plait.run(dag)``.
"""

import networkx as nx


def text() -> str:
    return "the quick brown fox jumps over the lazy dog and the cat"


def words(line: str) -> list[str]:
    return line.split()


def longest(found: list[str]) -> str:
    return max(found, key=len)


def most_frequent(found: list[str]) -> str:
    return max(found, key=found.count)


def sentence(long: str, frequent: str) -> str:
    return f"longest word: {long!r}; most frequent: {frequent!r}"


dag = nx.DiGraph()
for work in (text, words, longest, most_frequent, sentence):
    dag.add_node(work.__name__, work=work)
dag.add_edges_from(
    [
        ("text", "words"),
        ("words", "longest"),
        ("words", "most_frequent"),
        ("longest", "sentence"),
        ("most_frequent", "sentence"),
    ]
)
