"""The examples run."""

import json
import os
import pathlib
import subprocess
import sys

import cpumax
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def two(recordings, tmp_path):
    """A folder with two of the recordings."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    for name in ("bursts.perf.data", "web-closed.perf.data"):
        os.symlink(recordings / name, folder / name)
    return folder


def run(name, *arguments):
    line = [sys.executable, os.fspath(EXAMPLES / name), *map(os.fspath, arguments)]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def test_the_atlas_has_a_line_for_each_recording_and_kernel(two):
    lines = run("atlas.py", two).splitlines()
    assert len(lines) == 1 + 2 * 3 and lines[1].startswith("bursts.perf.data")


def test_the_fleet_has_a_table_a_page_and_patches(two, tmp_path):
    pytest.importorskip("pyarrow")
    assert run("fleet.py", tmp_path / "out", two).startswith("2 services save ")
    assert "web-closed" in (tmp_path / "out" / "fleet.html").read_text()
    assert (tmp_path / "out" / "patches" / "web-closed.yaml").exists()
    assert (tmp_path / "out" / "fleet.parquet").exists()


def test_optuna_finds_a_limit(bursts):
    pytest.importorskip("optuna")
    assert run("tune.py", bursts, "4").startswith("cost ")


def test_the_notebook_runs(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    names = {}
    for cell in json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert isinstance(names["study"], cpumax.Study) and names["advice"].limit
