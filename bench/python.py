#!/usr/bin/env python3
"""Measures the Python package as it is installed; `make python-bench` installs the wheel first.

Prints a line for each figure with its bound, and exits with 1 if one is missed. What is compared
takes turns, so that other work on the machine slows both. An argument chooses figures by name.
"""

import glob
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDING = os.fspath(ROOT / "recordings" / "bursts.perf.data")
KERNELS = ["6.12", "7.3"]


def limits(number):
    return [f"{100 + at}m" for at in range(number)]


def python(code):
    """What Python prints, and its CPU time, s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def wheel():
    return os.path.getsize(*glob.glob(os.fspath(ROOT / "target/wheels/*.whl"))) / 1e6


def importing():
    code = "import time; t = time.process_time(); import cpumax; print(time.process_time() - t)"
    return 1e3 * min(float(python(code)[0]) for _ in range(10))


def study():
    start = f"path, limits, kernels = {RECORDING!r}, {limits(499)!r}, {KERNELS!r}; import cpumax; "
    own = start + "cpumax.replay(cpumax.read(path), limits, kernels).to_json()"
    words = "*('--set=' + one for one in limits), '--kernel=' + ','.join(kernels)"
    command = f"{start}from cpumax._cpumax import main; "
    command += f"main(['cpumax', 'replay', path, {words}, '--json=/dev/null'])"
    pairs = [python(own)[1] / python(command)[1] for _ in range(5)]
    return 100 * (statistics.median(pairs) - 1)


def arrow():
    import cpumax
    import pyarrow

    text = '[[task]]\nname = "a"\nprogram = [{ forever = [{ user = "10us" }, { done = true }] }]\n'
    workload = cpumax.Workload.from_toml(f'duration = "11s"\n{text}')
    runs, took = cpumax.run(workload, "7.3", trace=True), []
    for _ in range(10):
        begin = time.thread_time()
        events = runs[0].events()
        table = pyarrow.table(events)
        took.append((time.thread_time() - begin) / table.num_rows)
        places = [one["ns"].chunk(0).buffers()[1].address for one in (table, pyarrow.table(events))]
        assert table.num_rows > 1_000_000 and places[0] == places[1], "a column is copied"
    return 1e9 * min(took)


def swept(executor, number, out, **more):
    """Seconds that a sweep takes."""
    import cpumax

    begin = time.perf_counter()
    cpumax.sweep([RECORDING], limits(number), KERNELS, out=out, executor=executor, **more)
    return time.perf_counter() - begin


def throughput():
    import ray
    from cpumax import sweeps

    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    ratios = []
    with sweeps.processes(2) as two, tempfile.TemporaryDirectory() as out:
        for at in range(6):
            own = swept(two, 249, f"{out}/{at}", limits_per_task=8)
            ratios.append(own / swept("ray", 249, f"{out}/{at}-ray", limits_per_task=8))
    return 100 * statistics.median(ratios[1:])  # the first one starts processes


def memory():
    code = f"import sys, tempfile; sys.path[:0] = [{os.fspath(ROOT / 'bench')!r}]; import python\n"
    code += "with tempfile.TemporaryDirectory() as out:\n"
    code += "    python.swept('ray', 49, out, limits_per_task=10, to='50ms', seeds=range(%d))\n"
    code += "print(python.resource.getrusage(python.resource.RUSAGE_SELF).ru_maxrss)\n"
    few, many = (float(python(code % seeds)[0]) / 1e3 for seeds in (1, 100))
    print(f"  {few:.0f} and {many:.0f} MB", flush=True)
    return many - few


FIGURES = [
    ("wheel", wheel, "<=", 15, "MB"),
    ("import, CPU time", importing, "<=", 50, "ms"),
    ("1000 cells, CPU time beyond the command's", study, "<=", 2, "%"),
    ("Arrow of a million latencies, CPU time", arrow, "<=", 20, "ms"),
    ("Ray, of the throughput of two processes, 500 cells", throughput, ">=", 85, "%"),
    ("memory of Ray's driver, 10 000 cells beyond 100", memory, "<=", 10, "MB"),
]


if __name__ == "__main__":
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    missed = False
    for name, measure, sign, bound, unit in FIGURES:
        if sys.argv[1:] in ([], [name.split(",")[0].split(" ")[0]]):
            value = measure()
            wrong = (value > bound) == (sign == "<=")
            print(f"{name}: {value:.1f} {unit} {sign} {bound}{': MISSED' * wrong}", flush=True)
            missed |= wrong
    sys.exit(missed)
