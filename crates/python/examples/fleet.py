"""The fleet's answer for the shipped recordings: a data set, a table, a page and patches.

python fleet.py OUT [FOLDER OF RECORDINGS]
"""

import pathlib
import sys

import cpumax

HERE = pathlib.Path(__file__).resolve().parent
LIMITS = [f"{cpus}m" for cpus in (250, 400, 600, 900, 1200, 1600, 2000)]
SHORT = [f"{cpus * 10} 10000" for cpus in (400, 600, 900, 1200)]


def answer(out, folder):
    """Sweeps the recordings and returns the fleet's table."""
    paths = sorted(pathlib.Path(folder).glob("*.perf.data"))
    services = [
        {"path": path, "service": path.name.split(".")[0], "current": "2"} for path in paths
    ]
    done = cpumax.sweep(services, LIMITS + SHORT, ["6.18"], out=str(pathlib.Path(out) / "cells"))
    return cpumax.fleet(done)


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    fleet = answer(out, sys.argv[2] if len(sys.argv) > 2 else HERE.parents[2] / "recordings")
    fleet.to_parquet(out / "fleet.parquet")
    (out / "fleet.html").write_text(fleet.to_html(), encoding="utf-8")
    fleet.patches(out / "patches")
    print(f"{len(fleet.rows)} services save {fleet.saved_cpus:.2f} CPUs: {out / 'fleet.html'}")
