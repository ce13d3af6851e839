"""Runs of workloads in the model."""

from __future__ import annotations

import json

from . import _cpumax
from ._answers import Answer
from ._words import shown, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ._words import Progress, Texts


class Run(Answer):
    """The outcome of one run: its document, with the events where they were asked for."""

    __slots__ = ("_at", "_of")

    def __init__(self, fields: dict, of: _cpumax._Runs, at: int):
        super().__init__(fields)
        self._of, self._at = of, at

    def events(self) -> _cpumax.Table:
        """A row for each event: time_ns, cpu, event, task, group, ns."""
        table = self._of.events(self._at)
        if table is None:
            raise _cpumax.QuestionError("no events were kept: run with trace=True")
        return table


class Runs:
    """Runs of one workload: by kernel, then by seed. A single run's fields are attributes too."""

    def __init__(self, of: _cpumax._Runs):
        self._of = of
        self._documents = json.loads(of.to_json())

    @property
    def passed(self) -> bool:
        """Whether the expectations of the scenario hold that could be checked."""
        return self._of.passed

    def to_json(self) -> str:
        """The documents, to the byte as ``cpumax run --json`` writes them."""
        return self._of.to_json()

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, at: int) -> Run:
        at = range(len(self))[at]
        return Run(self._documents[at], self._of, at)

    def __iter__(self) -> Iterator[Run]:
        return (self[at] for at in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or len(self) != 1:
            raise AttributeError(f"no attribute '{name}' of {len(self)} runs")
        return getattr(self[0], name)


def run(
    workload: _cpumax.Workload,
    kernel: Texts,
    *,
    seed: int = 1,
    seeds: tuple[int, int] | None = None,
    check: bool = False,
    noise: int | None = None,
    jobs: int | None = None,
    trace: bool = False,
    progress: Progress = None,
) -> Runs:
    """Runs a workload in the model, on each kernel with each seed.

    seeds: the first and the last, instead of one. check: verify every invariant of the model.
    noise: seed of random microseconds. jobs: threads to use. trace: keep the events.

    Raises KernelError, WorkloadError, RunError or ModelFault.
    """
    kernels = ",".join(texts(kernel))
    first_last = seeds or (seed, seed)
    with shown(progress) as told:
        return Runs(_cpumax.run(workload, kernels, first_last, check, noise, jobs, trace, told))


class Simulation:
    """A run that stops at any time and can be looked at. It lives on a thread of its own."""

    def __init__(
        self, workload: _cpumax.Workload, kernel: str, *, seed: int = 1, check: bool = False
    ):
        self._of = _cpumax._Simulation(workload, kernel, seed, check)

    @property
    def now(self) -> int:
        """Simulated time, ns."""
        return self._of.now_ns()

    def step_until(self, time: str | int) -> bool:
        """Runs up to a time such as ``"1s"``, or so many ns. False when the run is over."""
        return self._of.step_until(f"{time}ns" if isinstance(time, int) else time)

    def group(self, path: str) -> Answer:
        """A group now: runtime (left in its pool), quota, period, usage (all ns), throttled_cpus.

        Raises SelectionError if there is no such group.
        """
        return _state(self._of.group(path), f"no group {path}")

    def cpu(self, cpu: int) -> Answer:
        """A CPU now: online, running (name of a task or None), nr_running."""
        return _state(self._of.cpu(cpu), f"no CPU {cpu}")

    def task(self, name: str) -> Answer:
        """A task now: group, cpu, doing, usage (ns)."""
        return _state(self._of.task(name), f"no task {name} yet")

    def outcome(self) -> Answer:
        """The outcome so far; the run ends."""
        return Answer(json.loads(self._of.outcome()))


def _state(text: str | None, missing: str) -> Answer:
    if text is None:
        raise _cpumax.SelectionError(missing)
    return Answer(json.loads(text))
