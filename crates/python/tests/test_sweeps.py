"""Sweeps: the same rows whatever runs them, whole after a crash."""

import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import cpumax
import pytest
from cpumax import sweeps

pytest.importorskip("pyarrow")

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from cpumax.sweeps import command; sys.exit(command())",
]
LIMITS = ["300m", "500m", "5000 10000", "50000 100000,cpu.max.burst=20000"]


def digests(folder):
    files = sorted(pathlib.Path(folder).glob("part-*.parquet"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def swept(bursts, web, out, **more):
    return cpumax.sweep(
        [bursts, {"path": web, "service": "web"}],
        LIMITS,
        ["5.4", "6.18"],
        [1, 2],
        out=os.fspath(out),
        limits_per_task=2,
        **more,
    )


def test_every_executor_makes_the_same_bytes(bursts, web, tmp_path):
    done = swept(bursts, web, tmp_path / "own")
    assert (done.parts, done.made) == (8, 8)
    with ThreadPoolExecutor(2) as threads:
        swept(bursts, web, tmp_path / "threads", executor=threads)
    with sweeps.processes(2) as processes:
        swept(bursts, web, tmp_path / "processes", executor=processes)
    assert digests(tmp_path / "own") == digests(tmp_path / "threads")
    assert digests(tmp_path / "own") == digests(tmp_path / "processes")
    rows = done.table().to_pylist()
    cells = [(row["service"], row["asked"], row["kernel"], row["seed"]) for row in rows]
    assert len(cells) == len(set(cells)) == 2 * 5 * 2 * 2
    study = cpumax.replay(cpumax.read(web), "500m", "6.18", seed=2)
    row = next(row for row in rows if cells[rows.index(row)] == ("web", "500m", "6.18", 2))
    assert row["p99_ns"] == study["500m"].request_latency.p99.value


def test_a_cell_that_fails_is_a_row(bursts, tmp_path):
    wrong = tmp_path / "wrong.data"
    wrong.write_text("no recording")
    done = cpumax.sweep(
        [bursts, os.fspath(wrong), "not/there"],
        ["500", "500m", "cpu.max.burst=1000"],
        ["5.4"],
        out=os.fspath(tmp_path / "out"),
    )
    rows = done.table().to_pylist()
    told = {(row["recording"], row["asked"]): row["error"] for row in rows}
    assert told["bursts.perf.data", "none"] is None and told["bursts.perf.data", "500m"] is None
    assert "500" in told["bursts.perf.data", "500"]
    assert "5.14" in told["bursts.perf.data", "cpu.max.burst=1000"]
    assert "wrong.data" in told["wrong.data", "500m"] and told["there", "none"]
    assert len(rows) == 3 * 4


def test_what_is_done_is_not_done_again(bursts, web, tmp_path):
    first = swept(bursts, web, tmp_path / "whole")
    cut = swept(bursts, web, tmp_path / "cut")
    for part in sorted((tmp_path / "cut").glob("part-*"))[::2]:
        part.unlink()
    kept = {part: part.stat().st_mtime_ns for part in (tmp_path / "cut").glob("part-*")}
    again = swept(bursts, web, tmp_path / "cut")
    assert (cut.made, again.made) == (8, 4) and first.parts == again.parts
    assert all(part.stat().st_mtime_ns == at for part, at in kept.items())
    assert digests(tmp_path / "whole") == digests(tmp_path / "cut")
    with pytest.raises(cpumax.QuestionError, match="parts of another sweep"):
        cpumax.sweep([bursts], ["1"], ["7.3"], out=os.fspath(tmp_path / "cut"))


def test_a_killed_sweep_leaves_only_whole_parts(bursts, web, tmp_path):
    config = tmp_path / "sweep.toml"
    out = tmp_path / "out"
    config.write_text(
        f"recordings = [{bursts!r}, {web!r}]\nlimits = {LIMITS!r}\nkernels = ['all']\n"
        f"seeds = [1, 2]\nlimits_per_task = 1\nout = {os.fspath(out)!r}\n"
    )
    line = [*COMMAND, os.fspath(config)]
    running = subprocess.Popen(line)
    while not digests(out):
        assert running.poll() is None
        time.sleep(0.02)
    running.kill()
    running.wait()
    before = digests(out)
    done = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    after = digests(out)
    assert f"16 parts, {16 - len(before)} of them made now" in done
    assert len(after) == 16 and before.items() <= after.items()


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_ctrl_c_ends_a_sweep(web, tmp_path, executor):
    config, out = tmp_path / "sweep.toml", tmp_path / "out"
    config.write_text(
        f"recordings = [{web!r}]\nlimits = {[f'{n}m' for n in range(100, 500)]!r}\n"
        f"kernels = ['all']\nout = {os.fspath(out)!r}\nexecutor = {executor!r}\n"
        "limits_per_task = 100\n"
    )
    line = [*COMMAND, os.fspath(config)]
    running = subprocess.Popen(line, start_new_session=True, stderr=subprocess.PIPE, text=True)
    while not out.exists():
        assert running.poll() is None
        time.sleep(0.02)
    time.sleep(2)
    os.killpg(running.pid, signal.SIGINT)
    begin = time.monotonic()
    told = running.communicate()[1]
    assert running.returncode == 130 and "cpumax-sweep: interrupted" in told
    assert time.monotonic() - begin < 10  # a task takes longer


@pytest.mark.parametrize(
    "line, told",
    [
        ("executor = 'cloud'", "executor cannot be 'cloud': give threads, processes or ray"),
        ("seeds = [1, 'a']", "seeds cannot be [1, 'a']: give a list of whole numbers"),
        ("limits_per_task = 0", "limits_per_task cannot be 0: give a whole number from 1"),
        ("kernels = ['2.6']", "2.6"),
        ("over = 'soon'", "invalid value 'soon' for '--over <TIME>'"),
        ("limit_per_task = 3", "unexpected argument '--limit-per-task'"),
        ("seeds = [1 2]", "line 5"),
    ],
)
def test_wrong_configurations_are_told(tmp_path, capsys, line, told):
    config = tmp_path / "sweep.toml"
    out = os.fspath(tmp_path / "out")
    config.write_text(f"recordings = []\nlimits = []\nout = {out!r}\n\n{line}\n")
    with pytest.raises(SystemExit):
        sweeps.command([os.fspath(config)])
    error = capsys.readouterr().err
    assert told in error and f"cpumax-sweep: {config}:" in error
    assert "line 5" in error or f"{config}:5: " in error
    assert not os.path.exists(out)


def test_options_that_no_replay_takes_are_told_at_once(bursts, tmp_path):
    out = os.fspath(tmp_path / "out")
    for given, kind in [({"ovr": "1ms"}, cpumax.OptionError), ({}, cpumax.QuestionError)]:
        recording = {"path": bursts, **given} if given else {"service": "web"}
        with pytest.raises(kind, match="ovr|no path: {'service': 'web'}"):
            cpumax.sweep([recording], ["1"], out=out)


def test_urls_are_read_and_written(bursts, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://in/bursts.perf.data", "wb") as copy:
        copy.write(pathlib.Path(bursts).read_bytes())
    done = cpumax.sweep(
        ["memory://in/bursts.perf.data"], ["500m"], ["7.3"], out="memory://out/sweep"
    )
    assert [row["error"] for row in done.table().to_pylist()] == [None, None]
    again = cpumax.sweep(
        ["memory://in/bursts.perf.data"], ["500m"], ["7.3"], out="memory://out/sweep"
    )
    assert again.made == 0


def test_a_fleet_is_told_for_each_service(recordings, tmp_path):
    services = {"web": "web-closed.perf.data", "batch": "batch.perf.data", "none": "no.data"}
    given = [{"path": recordings / file, "service": name} for name, file in services.items()]
    given[0]["current"] = "2"
    limits = ["400m", "900m", "1100m", "1500m", "2", "9000 10000"]
    done = cpumax.sweep(given, limits, ["6.18"], out=os.fspath(tmp_path / "out"))
    fleet = cpumax.fleet(done, p99="200ms", throughput="90%")
    rows = {row["service"]: row for row in fleet.rows}
    web = rows["web"]
    cells = [row for row in done.table().to_pylist() if row["service"] == "web"]
    none = next(row for row in cells if row["limit"] == "none")
    kept = [
        row["millicpus"]
        for row in cells
        if row["limit"] != "none"
        and row["p99_ns_high"] <= 200_000_000
        and row["predictable"]
        and row["period_usec"] == 100_000
        and row["requests_per_second_low"] >= 0.9 * none["requests_per_second_low"]
    ]
    assert web["millicpus"] == min(kept) and web["sure"] == "yes"
    assert web["saved_cpus"] == pytest.approx(2 - web["millicpus"] / 1000)
    assert rows["none"]["limit"] is None and "no.data" in rows["none"]["sure"]
    fleet.to_parquet(tmp_path / "fleet.parquet")
    page = fleet.to_html()
    assert "Limits for 3 services" in page and "<script" not in page
    patches = fleet.patches(tmp_path / "patches")
    assert any("web.yaml" in path for path in patches)
    assert f"cpu: {web['millicpus']}m" in (tmp_path / "patches" / "web.yaml").read_text()
