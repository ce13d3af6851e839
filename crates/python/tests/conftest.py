"""Recordings of the repository, and the command that the package carries."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def recordings():
    return ROOT / "recordings"


@pytest.fixture(scope="session")
def bursts(recordings):
    return os.fspath(recordings / "bursts.perf.data")


@pytest.fixture(scope="session")
def web(recordings):
    return os.fspath(recordings / "web-closed.perf.data")


@pytest.fixture(scope="session")
def command():
    """What the command prints, of these words."""

    def output(*words):
        line = [sys.executable, "-m", "cpumax", *words]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout

    return output
