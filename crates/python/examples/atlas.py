"""The atlas: what a shorter period, a burst and another kernel do to each shipped recording.

python atlas.py [FOLDER OF RECORDINGS]
"""

import pathlib
import sys

import cpumax

HERE = pathlib.Path(__file__).resolve().parent


def atlas(folder, kernels=("5.4", "6.12", "7.3")):
    """For each recording and kernel, p99 in ms under as many CPUs as were used, three ways."""
    rows = []
    for path in sorted(pathlib.Path(folder).glob("*.perf.data")):
        recording = cpumax.read(path)
        used = cpumax.replay(recording, "max", kernels[-1])[0].cpus.value
        usec = max(2_000, round(used * 1.1 * 100_000))
        ways = {
            "100 ms": f"{usec} 100000",
            "10 ms": f"{max(1_000, usec // 10)} 10000",
            "burst": f"{usec} 100000,cpu.max.burst={usec}",
        }
        study = cpumax.replay(recording, ways.values(), kernels)
        for kernel in kernels:
            row = {"recording": recording.name, "kernel": kernel, "CPUs": usec / 100_000}
            for name, limit in {"none": "none", **ways}.items():
                row[name] = study[limit, kernel].request_latency.p99.value / 1e6
            rows.append(row)
    return rows


if __name__ == "__main__":
    default = HERE.parents[2] / "recordings"
    rows = atlas(sys.argv[1] if len(sys.argv) > 1 else default)
    print(f"{'recording':32} kernel  CPUs" + "".join(f"{n:>10}" for n in list(rows[0])[3:]))
    for row in rows:
        numbers = "".join(f"{number:10.1f}" for number in list(row.values())[3:])
        print(f"{row['recording']:32} {row['kernel']:6} {row['CPUs']:5.2f}{numbers}")
