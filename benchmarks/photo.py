"""The photo example on one stream and on two, taking turns; and how much of its copies hides behind compute.

python benchmarks/photo.py [PHOTO] [--quick]

The ratio is of pairs that ran one after the other, the median of them: a machine that slows down slows both.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import perf_counter

import plait
from harness import Others, heading, load_example, median, print_others
from plait.scheduler import Run
from plait.scheduler.report import Report


def measure(example: dict[str, object], photo: str, streams: int) -> Report:
    """The report of one run, from a fresh graph."""
    build = example["graph"]
    assert callable(build)
    ended: list[Run] = []
    with tempfile.TemporaryDirectory() as scratch:
        graph = build(photo, str(Path(scratch) / "edges.png"))
        plait.run(graph, scheduler={"streams": streams}, watch=ended.append)
    return ended[0].report()


def main() -> None:
    """Print times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photo", nargs="?", help="default: the one that examples/photo.py names")
    parser.add_argument("--quick", action="store_true", help="3 pairs")
    options = parser.parse_args()
    photo = options.photo or load_example("photo")["china"]()
    rounds = 3 if options.quick else 11
    heading(f"examples/photo_edges.py on {Path(photo).name}, one compute stream and two; {rounds} pairs")
    example = load_example("photo_edges")
    measure(example, photo, 2)
    one, two, hidden, taken = [], [], [], []
    began = perf_counter()
    for _ in range(rounds):
        with Others() as others:
            one.append(measure(example, photo, 1).makespan_s)
            report = measure(example, photo, 2)
        two.append(report.makespan_s)
        hidden.append(report.copies_hidden or 0.0)
        taken.append(others.seconds)
        print(f"  {one[-1]:.3f} s, {two[-1]:.3f} s: {one[-1] / two[-1]:.2f}   (others: {others.seconds:.2f} CPU s)")
    ratios = [first / second for first, second in zip(one, two, strict=True)]
    print(f"one stream {median(one):.3f} s, two {median(two):.3f} s")
    print(f"two streams are {median(ratios):.2f} times as fast as one (median of pairs)")
    quiet = [ratio for ratio, busy, wall in zip(ratios, taken, one, strict=True) if busy < 0.05 * wall]
    if quiet and len(quiet) < len(ratios):
        print(f"of the {len(quiet)} pairs that had the machine to themselves: {median(quiet):.2f}")
    print(f"copies behind compute, two streams: {median(hidden):.0%}")
    print_others(sum(taken), perf_counter() - began)


if __name__ == "__main__":
    main()
