#!/usr/bin/env python3
"""Two period timers at once: the lengths of their sections with interrupts off, if each waits for the locks of CPUs that the
other one has just released. Costs and counts are those of docs/lab/calibration.md; nothing is fitted here. The calculation is
independent of the model.

Each timer goes through the CPUs of its list, takes a CPU's lock, grants runtime and sends an interrupt (REMOTE). That CPU then
walks its part of the tree with its lock held (HANDLER). Lists are in the order in which CPUs were throttled. Both groups have the
same order, or any two orders if CPUs race to a tick or run out of runtime at different ticks."""

import heapq
import random
import sys

CPUS = 384
REMOTE_US = 3.6
HANDLER_US = 1101 * 0.135 + 26 * 1.45
IPI_US = 2.0


def sections(offset_us, orders):
    """Lengths of both sections in us; the second one begins offset_us after the first."""
    locked_until = [0.0] * CPUS
    start = [0.0, offset_us]
    ends = [0.0, 0.0]
    # Next step of each timer, in order of time.
    steps = [(start[timer], timer, 0) for timer in (0, 1)]
    heapq.heapify(steps)
    while steps:
        now, timer, at = heapq.heappop(steps)
        if at == len(orders[timer]):
            ends[timer] = now + HANDLER_US
            continue
        cpu = orders[timer][at]
        if locked_until[cpu] > now:
            heapq.heappush(steps, (locked_until[cpu], timer, at))
            continue
        done = now + REMOTE_US
        locked_until[cpu] = done + IPI_US + HANDLER_US
        heapq.heappush(steps, (done, timer, at + 1))
    return ends[0] - start[0], ends[1] - start[1]


def main():
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    random.seed(1)
    print(f"alone: {(CPUS - 1) * REMOTE_US / 1000 + HANDLER_US / 1000:.2f} ms")
    print(f"{'second after':>12}  {'same order':>20}  {'any order, mean':>20}  longest of 200")
    for offset_us in (0, 100, 200, 400, 800, 1200, 1600, 1800):
        same = sections(offset_us, [range(1, CPUS), range(1, CPUS)])
        runs = []
        for _ in range(200):
            orders = [random.sample(range(1, CPUS), CPUS - 1) for _ in (0, 1)]
            runs.append(sections(offset_us, orders))
        mean = [sum(run[timer] for run in runs) / len(runs) for timer in (0, 1)]
        longest = max(max(run) for run in runs)
        print(
            f"{offset_us:>9} us  {same[0] / 1000:8.2f} {same[1] / 1000:8.2f} ms"
            f"  {mean[0] / 1000:8.2f} {mean[1] / 1000:8.2f} ms  {longest / 1000:8.2f} ms"
        )


main()
