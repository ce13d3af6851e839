"""Arrow tables."""

import cpumax
import pytest

pyarrow = pytest.importorskip("pyarrow")


def test_a_study_is_a_row_for_each_cell(bursts):
    study = cpumax.replay(cpumax.read(bursts), ["500m", "20000 100000"], ["6.12", "6.18"])
    table = pyarrow.table(study)
    assert table.num_rows == len(study) == 6
    for row, cell in zip(table.to_pylist(), study):
        assert (row["limit"], row["kernel"]) == (cell.limit, cell.kernel)
        assert row["p99_ns_high"] == cell.request_latency.p99.high
        assert row["cpus"] == cell.cpus.value and row["predictable"] == cell.predictable


def test_parquet_files_are_those_of_the_command(bursts, web, tmp_path, command):
    parquet = pytest.importorskip("pyarrow.parquet")
    limits = ["500m", "20000 100000"]
    study = cpumax.replay(cpumax.read(bursts), limits, ["6.12", "6.18"])
    study.to_parquet(tmp_path / "s.parquet")
    assert parquet.read_table(tmp_path / "s.parquet").equals(pyarrow.table(study))
    own, words = tmp_path / "own.parquet", [f"--set={limit}" for limit in limits]
    command("replay", bursts, *words, "--kernel", "6.12,6.18", "--parquet", str(own))
    assert own.read_bytes() == (tmp_path / "s.parquet").read_bytes()
    advice = cpumax.advise([cpumax.read(web)], p99="50ms", kernels="6.18")
    advice.to_parquet(tmp_path / "a.parquet")
    command("advise", web, "--p99", "50ms", "--kernel", "6.18", "--parquet", str(own))
    assert own.read_bytes() == (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(cpumax.StudyError, match="not/there"):
        study.to_parquet("not/there.parquet")


def test_other_libraries_take_it_too(bursts):
    polars = pytest.importorskip("polars")
    study = cpumax.replay(cpumax.read(bursts), "500m", "7.3")
    frame = study.to_polars()
    assert frame.shape == (2, len(study.table().column_names))
    assert frame["kernel"].to_list() == ["7.3", "7.3"]
    assert polars.DataFrame(study.histograms())["count"].sum() > 0


def test_histograms_hold_every_request(web):
    study = cpumax.replay(cpumax.read(web), "900m", "7.3")
    rows = pyarrow.table(study.histograms()).to_pylist()
    assert all(row["low_ns"] < row["high_ns"] and row["count"] > 0 for row in rows)
    counts = [sum(row["count"] for row in rows if row["limit"] == one.limit) for one in study]
    assert min(counts) > 100


def test_threads_and_requests_of_a_recording(web):
    recording = cpumax.read(web)
    threads = pyarrow.table(recording.threads())
    assert threads.num_rows == len(recording.inspect().threads)
    requests = pyarrow.table(recording.requests())
    assert requests.num_rows > 100
    row = requests.to_pylist()[0]
    assert row["took_ns"] == row["answered_ns"] - row["arrived_ns"]


def test_events_are_rows():
    runs = cpumax.run(cpumax.Workload.load("nested"), "7.3", trace=True)
    events = pyarrow.table(runs[0].events())
    kinds = set(events.column("event").to_pylist())
    assert {"switch", "throttle", "unthrottle", "period"} <= kinds
    times = events.column("time_ns").to_pylist()
    assert times == sorted(times)
    with pytest.raises(cpumax.QuestionError, match="trace=True"):
        cpumax.run(cpumax.Workload.load("nested"), "7.3")[0].events()
