#!/usr/bin/env python3
"""Prints how long emulated kernels take from a tick to the context switch, and to park a task, by the depth of the task's group.
The ranges of crates/noise are read from it. It needs the runs that `make conformance` keeps.

    bench/microseconds.py target/conformance 6.1 6.18 7.0

A switch belongs to a tick if it comes within 40 us of the tick and the previous task had run for 0.1 ms and did not go to sleep.
Two switches within 20 us, with no other event between them, are a park (6.18 and later). Scenarios in which tasks move are left
out, because the depth of those tasks changes. Times are whole microseconds, the resolution of the traces."""

import collections
import json
import pathlib
import sys
import tomllib

TICK_NS, PARK_NS, LEAST_RUN_NS = 40_000, 20_000, 100_000


def runs(folder, version):
    """The scenario and the result of each kept run of a version that has a trace."""
    for path in sorted(pathlib.Path(folder).glob(f"{version}-[0-9a-f]*.json")):
        kept = json.loads(path.read_text())
        result, text = kept["answer"].get("result"), kept["job"]["job"]["scenario"]
        if result and result.get("trace") and "move" not in text:
            yield tomllib.loads(text), result


def switches(scenario, result):
    """Each switch: its time, the depths of both tasks (None: no task of the scenario), and the event right before."""
    groups = {task["name"]: task.get("group", "/") for task in scenario["task"]}
    names = result["trace"]["names"]["tasks"]

    def depth(task):
        group = None if task is None else groups.get(names[task].split("/")[0])
        return None if group is None else len([part for part in group.split("/") if part])

    before, last = None, None
    for event in result["trace"]["events"]:
        what = event["what"]
        kind = what if isinstance(what, str) else next(iter(what))
        if kind == "switch":
            to = depth(what["switch"]["next"])
            yield event["time_ns"], before, to, last
            before = to
        if kind != "period":
            last = kind


def show(title, found):
    for level in sorted(found):
        us = sorted(found[level])
        of = [us[len(us) * part // 100] for part in (5, 25, 50, 75, 95)]
        print(f"{title:26} {level:6} {len(us):7}  " + " ".join(f"{each:4}" for each in of))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(f"{'us':26} levels     all    5%  25%  50%  75%  95%")
    for version in sys.argv[2:]:
        ticks, parks = collections.defaultdict(list), collections.defaultdict(list)
        for scenario, result in runs(sys.argv[1], version):
            seen = result["conditions"]
            tick_ns, first_ns = 1_000_000_000 // seen["hz"], seen["first_tick_ns"]
            since_ns = 0
            for now_ns, depth, _, last in switches(scenario, result):
                late_ns, ran_ns = (now_ns - first_ns) % tick_ns, now_ns - since_ns
                if depth is not None and last != "sleep" and late_ns < TICK_NS and ran_ns > LEAST_RUN_NS:
                    ticks[depth].append(late_ns // 1000)
                if depth is not None and last == "switch" and ran_ns < PARK_NS:
                    parks[depth].append(ran_ns // 1000)
                since_ns = now_ns
        show(f"{version} tick to switch", ticks)
        show(f"{version} park", parks)


if __name__ == "__main__":
    main()
