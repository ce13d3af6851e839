#!/usr/bin/env python3
"""Measures the CPU time of a request, and the number of requests in a second, on real kernels and in the model.

    cargo build --release && make guest && bench/requests.py 6.12 6.18 7.3

Each scenario repeats one operation, so that an error of a microsecond in the model adds up a thousand times: system calls, moves,
preemption by ticks and by wakeups, in no group and three groups deep. The model runs under noise with twelve seeds; the table has
the mean and the range."""

import argparse
import json
import pathlib
import subprocess
import tempfile

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "target/release/cpumax"
SEEDS = range(1, 13)

HOG = '[[task]]\nname = "hog"\nnice = 10\nprogram = [{ forever = [{ user = "1ms" }, { done = true }] }]\n'
DEEP = '[[group]]\npath = "/a"\n[[group]]\npath = "/a/b"\n[[group]]\npath = "/a/b/c"\n'
TWO_GROUPS = '[[group]]\npath = "/a"\n[[group]]\npath = "/b"\n'


def task(program, more=""):
    return f'[[task]]\nname = "a"\n{more}program = [{{ forever = [{program}, {{ done = true }}] }}]\n'


LOCK = '[[lock]]\nname = "l"\nkind = "rwsem"\n'
HELD = '{ syscall = [{ lock = "l", mode = "write" }, { kernel = "200us" }, { unlock = "l" }] }'
TWO, IN_C = "count = 2\n", 'group = "/a/b/c"\n'

SCENARIOS = {
    "user time, two tasks": task('{ user = "700us" }', TWO),
    "kernel time, two tasks": task('{ kernel = "700us" }', TWO),
    "user time, deep": DEEP + task('{ user = "700us" }', TWO + IN_C) + HOG,
    "kernel time, deep": DEEP + task('{ kernel = "7ms" }', TWO + IN_C) + HOG,
    "sleeps, deep": DEEP + task('{ kernel = "300us" }, { sleep = "700us" }', IN_C) + HOG,
    "sleeps, works in user mode": task('{ sleep = "500us" }, { user = "300us" }') + HOG,
    "sleeps, works in the kernel": task('{ sleep = "500us" }, { kernel = "300us" }') + HOG,
    "a lock": LOCK + task(HELD + ', { user = "100us" }', TWO),
    "yields": task('{ user = "100us" }, { yield = true }', TWO),
    "moves": TWO_GROUPS + task('{ loop = 50, do = [{ move = "self", to = "/b" }, { move = "self", to = "/a" }] }, { user = "1ms" }', 'group = "/a"\n'),
    "makes itself less important": task('{ loop = 50, do = [{ nice = 5 }, { nice = 0 }] }, { user = "1ms" }'),
    "sends and waits": '[[channel]]\nname = "c"\n[[channel]]\nname = "d"\n'
    + task('{ user = "100us" }, { send = "c" }, { recv = "d" }')
    + '[[task]]\nname = "b"\nprogram = [{ forever = [{ recv = "c" }, { user = "100us" }, { send = "d" }, { done = true }] }]\n',
    "is throttled": '[[group]]\npath = "/a"\nmax = "5000 20000"\n' + task('{ user = "300us" }', 'count = 6\ngroup = "/a"\n') + HOG,
}


def requests(path, kernel, *more):
    """CPU time per request in us, and the number of requests, for each kind of task."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        subprocess.run([PROGRAM, "run", path, "--kernel", kernel, "--json", out, *more], check=True, stdout=subprocess.DEVNULL)
        told = json.loads(out.read_text())
    outcome = told[0] if isinstance(told, list) else told
    tasks = outcome.get("outcome", outcome)["tasks"]
    return {kind: (t["usage_usec"] / t["completions"], t["completions"]) for kind, t in tasks.items() if t.get("completions")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=["6.12", "6.18", "7.3"])
    parser.add_argument("--seconds", type=int, default=1, help="length of each run; longer runs are more exact")
    parser.add_argument("--only", default="", help="run only the scenarios whose names contain this text")
    asked = parser.parse_args()
    print(f"{'':28} {'kernel':7} {'task':4} {'us each: real':>14} {'model':>8} {'':>17} {'number: real':>13} {'model':>7}")
    for name, text in SCENARIOS.items():
        if asked.only not in name:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(f'name = "requests"\nduration = "{asked.seconds}s"\n[machine]\ncpus = 1\nhz = 250\n{text}')
            file.flush()
            for kernel in asked.kernels:
                real = requests(file.name, kernel, "--on", "vm")
                models = [requests(file.name, kernel, "--noise", str(seed)) for seed in SEEDS]
                for kind, (each_us, number) in real.items():
                    model_us = sorted(m[kind][0] for m in models)
                    mean_us = sum(model_us) / len(model_us)
                    most = f"({model_us[0]:.1f} to {model_us[-1]:.1f})"
                    model_number = sum(m[kind][1] for m in models) / len(models)
                    print(f"{name:28} {kernel:7} {kind:4} {each_us:14.1f} {mean_us:8.1f} {most:>17} {number:13} {model_number:7.0f}", flush=True)


if __name__ == "__main__":
    main()
