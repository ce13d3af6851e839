"""Event queue and M/M/1 with SimPy: see src/main.rs."""

import random
import time
from collections import deque

import simpy

PENDING = (1_000, 20_000)
HOLDS = 300_000
CUSTOMERS = 100_000


def hold(pending, holds):
    numbers = random.Random(1)
    env = simpy.Environment()
    left = [holds]
    done = env.event()

    def holder():
        while True:
            yield env.timeout(numbers.expovariate(1))
            left[0] -= 1
            if left[0] == 0:
                done.succeed()

    for _ in range(pending):
        env.process(holder())
    env.run(until=done)
    return env.now / holds * pending


def mm1(customers):
    """Processes for arrivals and server with a list between them, which is the fastest way in SimPy."""
    numbers = random.Random(1)
    env = simpy.Environment()
    waiting = deque()
    idle = [None]
    stayed = [0.0]

    def arrivals():
        for _ in range(customers):
            waiting.append(env.now)
            if idle[0] is not None:
                idle[0].succeed()
                idle[0] = None
            yield env.timeout(numbers.expovariate(0.8))

    def server():
        for _ in range(customers):
            if not waiting:
                idle[0] = env.event()
                yield idle[0]
            yield env.timeout(numbers.expovariate(1))
            stayed[0] += env.now - waiting.popleft()

    env.process(arrivals())
    env.process(server())
    env.run()
    return stayed[0] / customers


def row(what, events, of):
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        mean = of()
        best = min(best, time.process_time() - start)
    print(f"{'SimPy':<10} {what:<18} {events / best:>12.0f} {best / events * 1e9:>10.0f}  {mean:.2f}")


for pending in PENDING:
    row(f"hold, {pending}", HOLDS, lambda: hold(pending, HOLDS))
row("M/M/1", 2 * CUSTOMERS, lambda: mm1(CUSTOMERS))
