"""Recordings, replays and advice."""

from __future__ import annotations

import json
import os

from . import _cpumax
from ._answers import Answer, Cell
from ._words import shown, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Union

    from ._words import Progress, Text, Texts

    Path = Union[str, "os.PathLike[str]"]


class Tabular:
    """An answer that is a table for Arrow, by ``table``, and a page for notebooks, by ``to_html``.
    """

    def table(self) -> Any:
        raise NotImplementedError

    def to_html(self) -> str:
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table().__arrow_c_stream__(requested_schema)

    def to_polars(self) -> Any:
        """The table as a ``polars.DataFrame``."""
        import polars

        return polars.DataFrame(self)

    def _repr_html_(self) -> str:
        import html

        page = html.escape(self.to_html(), quote=True)
        style = "width:100%;height:40rem;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


class _Predicted(Tabular):
    """Predictions for limits."""

    _of: Any

    def table(self) -> _cpumax.Table:
        """A row for each limit on each kernel, with columns as of ``cpumax replay --csv``."""
        return self._of.table()

    def to_parquet(self, path: Path) -> None:
        """Writes the table as a Parquet file, as the command does with ``--parquet``.

        Raises StudyError if the file cannot be written."""
        self._of.to_parquet(path)

    def to_json(self) -> str:
        """The documents, to the byte as the command writes them with ``--json``."""
        return self._of.to_json()

    def to_html(self) -> str:
        """The page that ``cpumax report`` makes of it."""
        return self._of.to_html()


class Recording:
    """A recording in memory. Made by :func:`read`."""

    def __init__(self, path: str, of: _cpumax._Recording, options: dict):
        self.path, self._of, self._options = path, of, options

    @property
    def name(self) -> str:
        """Its name in answers."""
        return self._of.name

    def to_json(self) -> str:
        """Its contents, as ``cpumax inspect --json`` prints them."""
        return self._of.to_json()

    def inspect(self) -> Answer:
        """Its contents: threads, services, gaps."""
        return Answer(json.loads(self.to_json()))

    def threads(self) -> _cpumax.Table:
        """A row for each thread, the busiest first; CPU times in ns."""
        return self._of.threads()

    def requests(self) -> _cpumax.Table:
        """A row for each request that its services answered; times in ns from the first event."""
        return self._of.requests()

    def __repr__(self) -> str:
        return f"cpumax.read({self.path!r})"


def read(
    path: Path, *, event_cost: str | None = None, syscall_cost: str | None = None
) -> Recording:
    """Reads a recording: perf.data, trace.dat, a Perfetto trace, or text of perf and ftrace.

    event_cost, syscall_cost: CPU time that recording one event cost, such as ``"400ns"``.

    Raises RecordingError if it cannot be read, OptionError for a wrong cost.
    """
    name = os.fspath(path)
    options = {"event_cost": event_cost, "syscall_cost": syscall_cost}
    return Recording(name, _cpumax.read(name, words("replay", [name], options)), options)


class Study(_Predicted):
    """Predictions of a replay: a :class:`Cell` for each limit on each kernel, no limit first.

    ``study["500m"]`` is the cell of a limit, ``study["500m", "6.18"]`` that on one of several
    kernels, ``study[0]`` that at a place.
    """

    def __init__(self, of: _cpumax._Study):
        self._of = of
        self._cells = of.cells()
        self._recorded: Answer | None = None

    @property
    def recorded(self) -> Answer:
        """The recorded numbers, and what the recording lacks."""
        if self._recorded is None:
            self._recorded = Answer(json.loads(self._of.recorded())[0])
        return self._recorded

    @property
    def not_tried(self) -> list[tuple[str, str, str]]:
        """Limits and kernels that were not tried together, and why."""
        return self._of.not_tried()

    def histograms(self) -> _cpumax.Table:
        """A row for each bucket of latencies: at least low_ns, less than high_ns, count."""
        return self._of.histograms()

    def to_csv(self) -> str:
        """As ``cpumax replay --csv`` writes it."""
        return self._of.to_csv()

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Cell]:
        return (self[at] for at in range(len(self)))

    def __getitem__(self, key: int | str | tuple[str, str]) -> Cell:
        if isinstance(key, int):
            return self._cell(range(len(self))[key])
        limit, kernel = key if isinstance(key, tuple) else (key, None)
        label = limit if limit in ("none", "max") else _cpumax.limit_label(limit)
        label = "none" if label == "max" else label
        found = [
            at
            for at, cell in enumerate(self._cells)
            if cell[0] == label and kernel in (None, cell[1])
        ]
        if len(found) == 1:
            return self._cell(found[0])
        if not found:
            tried = ", ".join(f"{one} on {on}" for one, on in self._cells)
            raise KeyError(f"{key!r} was not tried; there is {tried}")
        kernels = ", ".join(self._cells[at][1] for at in found)
        raise KeyError(f"{limit!r} was tried on several kernels: give one of {kernels} too")

    def _cell(self, at: int) -> Cell:
        fields = json.loads(self._of.run(at))[0]
        why_not = fields["prediction"]["why_not"]
        return Cell(self._cells[at][0], fields, (why_not,) if why_not else ())

    def __repr__(self) -> str:
        kernels = dict.fromkeys(kernel for _, kernel in self._cells)
        limits = dict.fromkeys(limit for limit, _ in self._cells)
        return f"<cpumax.Study of {', '.join(limits)} on {', '.join(kernels)}>"


def replay(
    recording: Recording,
    limits: Texts = (),
    kernels: Texts | None = None,
    *,
    group: Texts = (),
    stretches: bool = False,
    progress: Progress = None,
    **options: Any,
) -> Study:
    """Shows what limits would do to a recorded service.

    limits: as ``cpumax replay --set`` takes them; none: a ladder around the CPUs used.
    kernels: versions, such as ``["6.18", "7.3"]``; None: the recorded one and the newest.
    group: the threads to limit; none: the control group that used most CPU time.
    stretches: also which thread ran when, for reports.
    options: further ones of the command: clients, open_loop, closed_loop, skip_late, pin, hz, cpus,
    from_, to, scale_work, work_range, seed, check, noise, jobs, over, scale_load.

    Raises OptionError, LimitError, KernelError, SelectionError, QuestionError, RecordingError or
    RunError, each with what would be accepted.
    """
    asked = {**recording._options, "group": group, "limits": limits, "kernels": kernels}
    asked.update(options, stretches=stretches)
    line = words("replay", [recording.path], asked)
    with shown(progress) as told:
        return Study(_cpumax.replay(recording._of, line, stretches, told))


#: Kinds, by their names for kubectl, whose pods have a template at one place and are rolled out.
_ROLLED_OUT = frozenset(
    "deploy deployment deployments sts statefulset statefulsets ds daemonset daemonsets".split()
)


class Advice(_Predicted):
    """The smallest limit that meets the goals, and why."""

    def __init__(self, of: _cpumax._Advice):
        self._of = of
        self.document = Answer(json.loads(of.to_json())[0])

    @property
    def limit(self) -> str | None:
        """The recommended limit: quota and period, us, and a burst; None: there is none."""
        found = self.document.to_dict()["recommended"]
        if not found:
            return None
        burst = found["burst_usec"]
        return found["cpu_max"] + (f",cpu.max.burst={burst}" if burst else "")

    @property
    def millicpus(self) -> int | None:
        """The same in thousandths of a CPU, rounded up."""
        found = self.document.to_dict()["recommended"]
        return found["millicpus"] if found else None

    def to_kubernetes(self, target: str = "deployment NAME", container: str | None = None) -> str:
        """A strategic-merge patch for a deployment, statefulset or daemonset, such as
        ``deploy/web``. For others, and for what the API server would refuse, :meth:`in_form` takes
        the object. QuestionError if there is no limit, or for another kind of target."""
        kind = target.replace("/", " ").split(" ")[0].lower()
        if kind not in _ROLLED_OUT:
            what = f"a patch for {target} needs its object: in_form('kubernetes', object=FILE)"
            raise _cpumax.QuestionError(what)
        text = self.in_form("kubernetes").replace("deployment NAME", target)
        if container is None:
            return text
        lines = [line for line in text.splitlines(True) if "in place of CONTAINER" not in line]
        return "".join(lines).replace("CONTAINER", container)

    def in_form(
        self,
        system: str,
        *,
        object: Path | None = None,
        container: str | None = None,
        whole_pod: bool = False,
    ) -> str:
        """The limit for kubernetes, kubectl, helm, kustomize, systemd, docker or cgroup.

        object: the file of ``kubectl get -o yaml``, of which ``container``, or the ``whole_pod``,
        gets the limit. QuestionError if there is no limit, or it would be refused.
        """
        return self._of.in_form(system, object and os.fspath(object), container, whole_pod)

    def __str__(self) -> str:
        return self._of.text()

    def __repr__(self) -> str:
        return f"<cpumax.Advice: {self.limit or 'no limit'}>"


def advise(
    recordings: Iterable[Recording],
    *,
    p50: str | None = None,
    p95: str | None = None,
    p99: str | None = None,
    p99_9: str | None = None,
    slower_than: Text | None = None,
    throttled: Text | None = None,
    throughput: Text | None = None,
    load: Text | None = None,
    period: Texts | None = None,
    burst: Texts | None = None,
    current: str | None = None,
    kernels: Texts | None = None,
    group: Texts = (),
    stretches: bool = False,
    progress: Progress = None,
    **options: Any,
) -> Advice:
    """Finds the smallest limit that meets goals on all of these recordings.

    p50, p95, p99, p99_9: most latency, such as ``"50ms"``. slower_than, throttled, throughput: per
    cent, such as ``"10%"``. load: traffic as a multiple of the recorded. period, burst: those to
    try. current: the present limit. Further options as of :func:`replay`.

    Raises as :func:`replay` does.
    """
    recordings = list(recordings)
    if not recordings:
        raise _cpumax.QuestionError("give at least one recording")
    asked = dict(
        p50=p50,
        p95=p95,
        p99=p99,
        p99_9=p99_9,
        slower_than=slower_than,
        throttled=throttled,
        throughput=throughput,
        load=load,
        period=period,
        burst=burst,
        current=current,
        stretches=stretches,
        group=group,
        kernels=kernels,
        **options,
    )
    line = words("advise", [one.path for one in recordings], {**recordings[0]._options, **asked})
    with shown(progress) as told:
        return Advice(_cpumax.advise([one._of for one in recordings], line, stretches, told))
