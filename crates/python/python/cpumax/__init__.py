"""What will a CPU limit do to my service, on this kernel?

Recordings of real services are replayed under limits (cgroup ``cpu.max``) on a model of each
kernel from 3.16 on. Numbers are predictions with ranges. Options have the names of the command's,
with ``_`` for ``-``, and take the same values; times of results are nanoseconds.

    >>> rec = cpumax.read("web.cpumax")
    >>> study = cpumax.replay(rec, limits=["500m", "50000 10000"], kernels=["6.18"])
    >>> study["500m"].request_latency.p99.high
"""

from ._answers import Answer, Cell
from ._cpumax import (
    Error,
    KernelError,
    LimitError,
    ModelFault,
    OptionError,
    QuestionError,
    RecordingError,
    RunError,
    SelectionError,
    StudyError,
    Table,
    Workload,
    WorkloadError,
    __version__,
)
from ._runs import Run, Runs, Simulation, run
from ._studies import Advice, Recording, Study, advise, read, replay

__all__ = [
    "Advice",
    "Answer",
    "Cell",
    "Error",
    "KernelError",
    "LimitError",
    "ModelFault",
    "OptionError",
    "QuestionError",
    "Recording",
    "RecordingError",
    "Run",
    "RunError",
    "Runs",
    "SelectionError",
    "Simulation",
    "Study",
    "StudyError",
    "Table",
    "Workload",
    "WorkloadError",
    "__version__",
    "advise",
    "fleet",
    "read",
    "replay",
    "run",
    "sweep",
]


def __getattr__(name):
    """Loads sweeps and fleets when they are used: they need more time than the rest."""
    if name == "sweep":
        from .sweeps import sweep

        return sweep
    if name == "fleet":
        from .fleets import fleet

        return fleet
    raise AttributeError(f"module 'cpumax' has no attribute '{name}'")
