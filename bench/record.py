#!/usr/bin/env python3
"""Compares the cost of `cpumax record` with `perf record` of the same events, for docs/guide/record.md.

    python3 bench/record.py target/release/cpumax        (root; perf with `perf bench`)

Each load runs without a recorder, with cpumax and with perf, three times in turn. Figures are medians of CPU time.
"""
import os
import resource
import statistics
import subprocess
import sys
import tempfile

SCHEDULER = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,sched:sched_process_fork,sched:sched_stat_runtime"
CALLS = "raw_syscalls:sys_enter,raw_syscalls:sys_exit"
LOADS = [
    ("pipe", "taskset -c 0 perf bench sched pipe -l 60000", ["-e", SCHEDULER], []),
    ("syscall", "perf bench syscall basic -l 1500000", ["-e", SCHEDULER, "-e", CALLS], ["--calls"]),
]


def used(command):
    """CPU time of a command and of all its children, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    cpumax = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        times, files = (os.path.join(folder, "times")), [os.path.join(folder, name) for name in ("cpumax", "perf")]
        for name, load, events, calls in LOADS:
            timed = ["bash", "-c", f'TIMEFORMAT="%U %S"; {{ time {load} >/dev/null 2>&1; }} 2>{times}']
            perf = ["perf", "record", "-q", "-a", "--all-cgroups", "-m", "8M", *events, "--exclude-perf", "-o", files[1]]
            ways = {"none": [], "cpumax": [cpumax, "record", *calls, "-o", files[0], "--"], "perf": [*perf, "--"]}
            found = {way: [] for way in ways}
            for _ in range(3):
                for way, before in ways.items():
                    total = used([*before, *timed])
                    with open(times) as text:
                        own = sum(map(float, text.read().split()))
                    found[way].append((own, total - own))
            for way, pairs in found.items():
                own, recorder = (statistics.median(part) for part in zip(*pairs))
                print(f"{name:8} {way:7} load {own:.3f} s, recorder {recorder:.3f} s")
            print(f"{name:8} bytes   cpumax {os.path.getsize(files[0])}, perf {os.path.getsize(files[1])}")


main()
