#!/usr/bin/env python3
"""Tells whether the results of the model have changed, by one checksum over very many runs.

    bench/same.py PROGRAM              prints the checksum
    bench/same.py PROGRAM OTHER        prints both, and the runs that differ; exits with 1 if any does

PROGRAM is a cpumax. It runs every built-in scenario on every modelled kernel with seeds 1 to 3, the
shipped recordings under the default limits, and the random cases 0 to 500. The checksum covers the
fields below, so results may gain other fields without changing it. Two programs run only the
scenarios and kernels that both have.
"""

import hashlib
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDINGS = [
    "batch-limited", "batch", "bursts", "pipeline", "web-closed-limited", "web-closed-syscalls",
    "web-closed", "web-rate",
]
# One kernel of each generation, and some that differ within a generation.
REPLAYED_ON = "4.19,5.4,6.1,6.12,6.18,7.2,7.3"
CASES = range(501)

PERCENTILES = dict.fromkeys(["p50", "p99", "max"])
GROUP = dict.fromkeys([
    "usage_usec", "nr_periods", "nr_throttled", "throttled_usec", "nr_bursts", "burst_usec",
    "local_throttled_usec", "max_period_usage_usec", "completions",
]) | {"latency_ns": PERCENTILES}
TASK = dict.fromkeys([
    "count", "usage_usec", "completions", "wait_ns", "longest_stall_ns", "exited", "finished_ns",
]) | {"latency_ns": PERCENTILES}
RELEASE = dict.fromkeys(["calls", "rqs", "cfs_rqs", "tasks", "spent_ns"]) | {
    "irqoff_ns": PERCENTILES | {"histogram": None}
}
RUN = dict.fromkeys([
    "scenario", "world", "kernel", "generation", "seed", "simulated_ns", "events",
    "group", "cpu_max", "burst_usec", "finished_ns", "slowdown",
]) | {"groups": {"*": GROUP}, "tasks": {"*": TASK}, "release": RELEASE}


def only(value, fields):
    """The part of a value that has these names; `*` stands for any name."""
    if fields is None:
        return value
    kept = {}
    for name, inner in value.items():
        if "*" in fields or name in fields:
            kept[name] = only(inner, fields.get(name, fields.get("*")))
    return kept


def runs(program, *arguments):
    """The results of one command, one line each."""
    done = subprocess.run(
        [program, *arguments, "--json", "-"], cwd=ROOT, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    # Status 1 means that an expectation of a scenario failed. The results are complete then, too.
    if done.returncode not in (0, 1):
        raise SystemExit(f"{program} {' '.join(arguments)}: {done.stderr.decode().strip()}")
    for run in json.loads(done.stdout):
        if run["world"] == "model":
            yield json.dumps(only(run, RUN), sort_keys=True)


def names(program, *arguments):
    done = subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


def kernels(program):
    return [entry["first"] for entry in json.loads(names(program, "kernels", "--json"))]


def questions(programs):
    """The runs of each program: a name, and the arguments."""
    common = [kernel for kernel in kernels(programs[0]) if all(kernel in kernels(p) for p in programs)]
    known = [set(names(program, "scenarios").split()) for program in programs]
    for file in sorted((ROOT / "scenarios").glob("*.toml")):
        if all(file.stem in known_by for known_by in known):
            yield file.stem, ["run", file.stem, "--kernel", ",".join(common), "--seeds", "1..3"]
    for recording in RECORDINGS:
        file = f"recordings/{recording}.perf.data"
        yield recording, ["replay", file, "--kernel", REPLAYED_ON]
    for first in range(0, len(CASES), 50):
        cases = [f"case-{number}" for number in CASES[first:first + 50]]
        yield f"{cases[0]} to {cases[-1]}", ["run", *cases, "--kernel", ",".join(common)]


def main():
    programs = [str(pathlib.Path(program).resolve()) for program in sys.argv[1:]]
    if not 1 <= len(programs) <= 2:
        raise SystemExit(__doc__)
    sums = [hashlib.sha256() for _ in programs]
    count = 0
    differ = False
    for name, arguments in questions(programs):
        lines = [list(runs(program, *arguments)) for program in programs]
        for line_sum, of_one in zip(sums, lines):
            line_sum.update("\n".join([name, *of_one, ""]).encode())
        count += len(lines[0])
        if lines[0] != lines[-1]:
            differ = True
            wrong = [i for i, pair in enumerate(zip(*lines)) if pair[0] != pair[-1]]
            print(f"{name}: {len(wrong)} of {len(lines[0])} and {len(lines[-1])} runs differ")
            for pair in [[of_one[i] for of_one in lines] for i in wrong[:1]]:
                print(*(f"  {line}" for line in pair), sep="\n")
    for line_sum in sums:
        print(f"{line_sum.hexdigest()} of {count} runs")
    sys.exit(1 if differ else 0)


main()
