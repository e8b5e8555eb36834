"""A cluster of many workers on paper: `python -m tests.benchmarks.cluster_simulation [--start-s 0.7] [--starts-per-s 20]`.

A model, not a measurement: jobs wait in one line; a slot takes the next one, for whose start the cluster's rate of starts
is asked; the base of its repository is brought cold once to each worker; the run's length is drawn, and a worker may die.
Give it what was measured on one machine, and it says what breaks first on a thousand.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import deque
from dataclasses import dataclass

SLOTS = 4
JOBS_A_SLOT = 16
BASE_MB = 101.0


@dataclass(frozen=True)
class Case:
    """One cluster and its work."""

    workers: int
    jobs: int
    starts_per_s: float
    start_s: float
    is_placed: bool = True
    repositories: int = 640
    cold_s: float = 8.0
    warm_s: float = 1.0
    deaths_per_hour: float = 0.01


@dataclass(frozen=True)
class Outcome:
    """Until 95 % of the jobs had ended, in minutes; how much of the slots' time was work; bases sent; jobs lost."""

    minutes: float
    efficiency: float
    terabytes: float
    lost: int


def simulate(case: Case, seed: int = 1) -> Outcome:
    """Play a case through."""
    chance = random.Random(seed)
    waiting: dict[int, deque[float]] = {}
    for number in range(case.jobs):
        # About four minutes, at most fifteen.
        length = min(900.0, chance.lognormvariate(5.3, 0.6))
        waiting.setdefault(number % min(case.repositories, case.jobs), deque()).append(length)
    line = deque(waiting)
    held: list[set[int]] = [set() for _ in range(case.workers)]
    free = [(0.0, slot) for slot in range(case.workers * SLOTS)]
    heapq.heapify(free)
    next_start = work_s = bases_mb = 0.0
    ends: list[float] = []
    lost = 0
    while line and free:
        now, slot = heapq.heappop(free)
        worker = slot // SLOTS
        repository = _next(line, held[worker]) if case.is_placed else line[chance.randrange(len(line))]
        length = waiting[repository].popleft()
        if not waiting[repository]:
            line.remove(repository)
        next_start = max(now, next_start + 1 / case.starts_per_s)
        is_warm = repository in held[worker]
        held[worker].add(repository)
        bases_mb += 0 if is_warm else BASE_MB
        took = case.start_s + (case.warm_s if is_warm else case.cold_s) + length
        if chance.random() < case.deaths_per_hour * took / 3600:
            lost += 1
        else:
            work_s += length
        ends.append(next_start + took)
        heapq.heappush(free, (next_start + took, slot))
    ends.sort()
    until = ends[int(0.95 * (len(ends) - 1))]
    total = ends[-1] * case.workers * SLOTS
    return Outcome(until / 60, work_s / total, bases_mb / 1e6, lost)


def _next(line: deque[int], held: set[int]) -> int:
    """A repository that the worker has, if one is near the front of the line; else the first, which goes to its end."""
    for place in range(min(64, len(line))):
        if line[place] in held:
            return line[place]
    line.rotate(-1)
    return line[-1]


def main() -> None:
    arguments = argparse.ArgumentParser(description="a cluster on paper")
    arguments.add_argument("--start-s", type=float, default=0.7, help="from a free slot to a job's first event")
    arguments.add_argument("--starts-per-s", type=float, default=20.0)
    given = arguments.parse_args()
    cases = [(1, True), (100, True), (1_000, True), (1_000, False)]
    rows = [(workers, is_placed, given.starts_per_s) for workers, is_placed in cases] + [(1_000, True, 5.0)]
    print("workers  jobs    starts/s  by repository  95 % after  efficiency  bases     lost")
    for workers, is_placed, starts_per_s in rows:
        case = Case(workers, workers * SLOTS * JOBS_A_SLOT, starts_per_s, given.start_s, is_placed=is_placed)
        outcome = simulate(case)
        print(
            f"{workers:<8} {case.jobs:<7} {starts_per_s:<9g} {'yes' if is_placed else 'no':<14} "
            f"{outcome.minutes:>5.0f} min   {outcome.efficiency:<11.2f} {outcome.terabytes:<5.2f} TB  {outcome.lost}"
        )


if __name__ == "__main__":
    main()
