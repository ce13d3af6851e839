"""Sweeps: recordings x limits x kernels x seeds, a row for each, as a Parquet data set.

The work is cut into tasks: some limits of one recording with one seed, on all kernels. A task is
one part of the data set, whatever ran it, so the same sweep has the same bytes. A part is written
beside and renamed. A sweep that was stopped goes on with the parts that are missing.
"""

from __future__ import annotations

import argparse
import collections
import functools
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import _cpumax
from ._studies import Recording, read, replay
from ._words import shown, texts, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._words import Progress, Texts

#: Limits in a task: with two kernels, a task of a recording of seconds takes tens of seconds.
LIMITS_PER_TASK = 32
#: Tasks that wait, for each that runs: results that are not yet taken are few.
_AHEAD = 2
#: A task that died with its machine is done again so often.
_RETRIES = 8
#: Fields of a recording that are no options of a replay.
_OWN = ("path", "service", "current")


class Task(NamedTuple):
    """A part of a sweep; everything that its rows depend on."""

    recording: str
    service: str
    current: str | None
    stamp: str
    limits: tuple[str, ...]
    #: Whether its rows without a limit count; those of further tasks of the recording are equal.
    is_first: bool
    kernels: tuple[str, ...] | None
    seed: int
    options: tuple[tuple[str, Any], ...]

    def key(self) -> str:
        """The name of its part."""
        text = json.dumps([_cpumax.__version__, *self], sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


class Sweep(NamedTuple):
    """A data set that is complete."""

    path: str
    #: Number of parts, and of those that this call made.
    parts: int
    made: int

    def table(self) -> Any:
        """All rows as a ``pyarrow.Table``."""
        import pyarrow.dataset

        files, folder = _files(self.path)
        names = sorted(name for name in files.ls(folder) if _is_part(name))
        return pyarrow.dataset.dataset(
            names, format="parquet", filesystem=None if isinstance(files, _Local) else files
        ).to_table()


def sweep(
    recordings: Iterable[str | dict[str, Any]],
    limits: Texts,
    kernels: Texts | None = None,
    seeds: Iterable[int] = (1,),
    *,
    out: str,
    executor: Any = None,
    limits_per_task: int = LIMITS_PER_TASK,
    progress: Progress = None,
    **options: Any,
) -> Sweep:
    """Replays each recording under no limit and each limit, on each kernel, with each seed.

    recordings: paths, URLs for fsspec, or dicts with ``path``, the name of the ``service``, its
    ``current`` limit, and options of this recording such as ``group``.
    out: the folder of the data set, a path or a URL for fsspec.
    executor: None: the threads of this process. A ``concurrent.futures.Executor``, or ``"ray"``.
    options: of every replay, as :func:`cpumax.replay` takes them.

    Columns are those of a study with ``service``, ``seed``, ``current``, ``asked`` (the limit as it
    was given) and ``error``: a cell that fails is a row that says why. Raises QuestionError where
    the folder has parts of another sweep, OptionError or KernelError where options are wrong.
    """
    limits, seeds = texts(limits), list(seeds)
    tasks = list(_tasks(recordings, limits, kernels, seeds, limits_per_task, options))
    files, folder = _files(out)
    files.makedirs(folder, exist_ok=True)
    names = {task.key(): task for task in tasks}
    there = {_key(name) for name in files.ls(folder) if _is_part(name)}
    if there - names.keys():
        raise _cpumax.QuestionError(f"{out} has parts of another sweep: give another folder")
    missing = [task for key, task in names.items() if key not in there]
    with shown(progress) as told:
        for done, (task, part) in enumerate(_each(executor, missing)):
            _put(files, f"{folder}/part-{task.key()}.parquet", part)
            if told:
                told((len(there) + done + 1) / len(names))
    return Sweep(out, len(names), len(missing))


def _tasks(
    recordings: Iterable[str | dict[str, Any]],
    limits: list[str],
    kernels: Texts | None,
    seeds: list[int],
    per_task: int,
    options: dict[str, Any],
) -> Iterator[Task]:
    kernels = None if kernels is None else tuple(texts(kernels))
    checked: list[str] = []
    for recording in recordings:
        given = recording if isinstance(recording, dict) else {"path": recording}
        if "path" not in given:
            raise _cpumax.QuestionError(f"a recording has no path: {recording!r}")
        path = os.fspath(given["path"])
        own = {**options, **{name: of for name, of in given.items() if name not in _OWN}}
        line = words("replay", ["recording"], {**own, "kernels": kernels})
        if line != checked:
            _cpumax.check(line)
            checked = line
        stamp, name = _stamp(path), str(given.get("service", os.path.basename(path)))
        current = given.get("current")
        tried = list(dict.fromkeys([current, *limits] if current else limits))
        for seed in seeds:
            for at in range(0, max(1, len(tried)), per_task):
                chunk, options_of = tuple(tried[at : at + per_task]), tuple(sorted(own.items()))
                yield Task(path, name, current, stamp, chunk, at == 0, kernels, seed, options_of)


# A part: what a task yields.


def rows(task: Task, jobs: int | None = None) -> Any:
    """The rows of a task as a ``pyarrow.Table``."""
    import pyarrow

    try:
        found = _of_limits(task, _recording(task.recording, task.stamp), task.limits, jobs)
    except (_cpumax.Error, OSError) as error:
        found = _failed(task, ["none", *task.limits] if task.is_first else task.limits, error)
    columns = _with_task(task, pyarrow.table(_cpumax.no_rows()).drop_columns(["role"]), [], None)
    return pyarrow.concat_tables([columns, *found], promote_options="default")


def _of_limits(
    task: Task, recording: Recording, limits: tuple[str, ...], jobs: int | None
) -> list[Any]:
    """Rows of limits; where they fail together each is tried alone."""
    try:
        study = replay(
            recording,
            limits or ("max",),
            task.kernels,
            seed=task.seed,
            jobs=jobs,
            progress=False,
            **dict(task.options),
        )
    except _cpumax.Error as error:
        if not limits:
            return _failed(task, ["none"], error)
        if len(limits) == 1:
            # Without it there may be an answer, of no limit.
            none = _of_limits(task, recording, (), jobs) if task.is_first else []
            return none + _failed(task, list(limits), error)
        first = task._replace(is_first=False)
        alone = [_of_limits(first, recording, (limit,), jobs) for limit in limits]
        none = _of_limits(task, recording, (), jobs) if task.is_first else []
        return none + [table for tables in alone for table in tables]
    return _succeeded(task, study, limits)


def _succeeded(task: Task, study: Any, limits: tuple[str, ...]) -> list[Any]:
    import pyarrow

    table = pyarrow.table(study).drop_columns(["role"])
    asked = {_cpumax.limit_label(limit): limit for limit in reversed(limits)}
    labels = table.column("limit").to_pylist()
    kernels = table.column("kernel").to_pylist()
    seen, kept = set(), []
    for at, cell in enumerate(zip(labels, kernels)):
        if cell not in seen and (labels[at] != "none" or task.is_first):
            kept.append(at)
        seen.add(cell)
    given = [asked.get(labels[at], "none") for at in kept]
    tables = [_with_task(task, table.take(kept), given, None)]
    for label, kernel, why in study.not_tried:
        tables += _failed(task, [asked.get(label, label)], why, [kernel])
    return tables


def _failed(
    task: Task, limits: Iterable[str], error: Any, kernels: list[str] | None = None
) -> list[Any]:
    """A row for each limit and kernel that says why there is no answer."""
    import pyarrow

    cells = [(limit, on) for limit in limits for on in kernels or task.kernels or [None]]
    if not cells:
        return []
    table = pyarrow.table(
        {
            "recording": [os.path.basename(task.recording)] * len(cells),
            "kernel": pyarrow.array([on for _, on in cells], pyarrow.string()),
        }
    )
    return [_with_task(task, table, [limit for limit, _ in cells], str(error))]


def _with_task(task: Task, table: Any, asked: list[str], error: str | None) -> Any:
    import pyarrow

    count = table.num_rows
    columns = {
        "service": pyarrow.array([task.service] * count, pyarrow.string()),
        "seed": pyarrow.array([task.seed] * count, pyarrow.uint64()),
        "current": pyarrow.array([task.current] * count, pyarrow.string()),
        "asked": pyarrow.array(asked, pyarrow.string()),
        "error": pyarrow.array([error] * count, pyarrow.string()),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


@functools.lru_cache(maxsize=1)
def _recording(path: str, stamp: str) -> Recording:
    """The recording, which the tasks of one process that follow use again."""
    del stamp
    if "://" not in path:
        return read(path)
    import fsspec

    with tempfile.TemporaryDirectory(prefix="cpumax-") as folder:
        here = os.path.join(folder, os.path.basename(path))
        with fsspec.open(path, "rb") as source, open(here, "wb") as copy:
            while block := source.read(1 << 20):
                copy.write(block)
        return read(here)


def part(task: Task, jobs: int | None = 1) -> bytes:
    """The part of a task, as the bytes of a Parquet file."""
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(rows(task, jobs), out, compression="zstd")
    return out.getvalue()


# Executors.


def _each(executor: Any, tasks: list[Task]) -> Iterator[tuple[Task, bytes]]:
    """Each task with its part, in any order."""
    if executor is None:
        return ((task, part(task, None)) for task in tasks)
    if executor == "ray":
        return _on_ray(tasks)
    return _on_executor(executor, tasks)


def _on_executor(executor: Any, tasks: list[Task]) -> Iterator[tuple[Task, bytes]]:
    from concurrent.futures import FIRST_COMPLETED, wait

    workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
    left, running = collections.deque(tasks), {}
    try:
        while left or running:
            while left and len(running) < _AHEAD * workers:
                task = left.popleft()
                running[executor.submit(part, task)] = task
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
    finally:
        for future in running:
            future.cancel()


def _on_ray(tasks: list[Task]) -> Iterator[tuple[Task, bytes]]:
    import ray

    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(part)
    left, running = collections.deque(tasks), {}
    try:
        while left or running:
            ahead = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while left and len(running) < ahead:
                task = left.popleft()
                running[remote.remote(task)] = task
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                yield running.pop(reference), ray.get(reference)
    finally:
        for reference in running:
            ray.cancel(reference)


# Files, here or behind fsspec.


class _Local:
    """The few calls of an fsspec file system that are needed, for paths."""

    makedirs = staticmethod(os.makedirs)

    @staticmethod
    def ls(folder: str) -> list[str]:
        return [f"{folder}/{name}" for name in os.listdir(folder)]


def _files(url: str) -> tuple[Any, str]:
    if "://" not in url:
        return _Local(), url.rstrip("/") or "/"
    import fsspec

    files, path = fsspec.core.url_to_fs(url)
    files.ls = functools.partial(files.ls, detail=False)
    return files, path.rstrip("/")


def _put(files: Any, path: str, content: bytes) -> None:
    """Writes a file so that it is whole or not there."""
    if not isinstance(files, _Local):
        files.pipe_file(path + ".tmp", content)
        files.mv(path + ".tmp", path)
        return
    folder = os.path.dirname(path)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="_", delete=False) as beside:
        try:
            beside.write(content)
            beside.flush()
            os.fsync(beside.fileno())
            os.replace(beside.name, path)
        except BaseException:
            os.unlink(beside.name)
            raise


def _is_part(name: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    return base.startswith("part-") and base.endswith(".parquet")


def _key(name: str) -> str:
    return name.rsplit("/", 1)[-1][len("part-") : -len(".parquet")]


def _stamp(path: str) -> str:
    """Something that changes with the content of a file, or why it cannot be had."""
    try:
        if "://" not in path:
            state = os.stat(path)
            return f"{state.st_size} {state.st_mtime_ns}"
        import fsspec

        files, inside = fsspec.core.url_to_fs(path)
        told = files.info(inside)
        names = ("size", "mtime", "ETag", "etag", "LastModified", "updated")
        return " ".join(str(told[name]) for name in names if name in told)
    except OSError as error:
        return type(error).__name__


# cpumax-sweep


def command(line: list[str] | None = None) -> int:
    """The command ``cpumax-sweep``."""
    parser = argparse.ArgumentParser(prog="cpumax-sweep", description=_ABOUT)
    parser.add_argument("config", metavar="CONFIG.toml", help="what to sweep")
    given = parser.parse_args(line)
    try:
        done = sweep(**_config(given.config))
    except (OSError, ValueError, ImportError, _cpumax.Error) as error:
        parser.exit(2, f"cpumax-sweep: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "cpumax-sweep: interrupted\n")
    print(f"{done.path}: {done.parts} parts, {done.made} of them made now")
    return 0


_ABOUT = "Sweeps recordings over limits, kernels and seeds. The file has the arguments of \
cpumax.sweep: recordings, limits, kernels, seeds, out, executor (threads, processes, ray), and \
options of replays."


def processes(number: int | None = None) -> Any:
    """An executor of processes that share nothing with this one's threads. Ctrl-C ends them."""
    import multiprocessing
    import signal
    from concurrent.futures import ProcessPoolExecutor

    end = signal.signal, (signal.SIGINT, signal.SIG_DFL)
    return ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), *end)


_EXECUTORS = {"threads": lambda: None, "processes": processes, "ray": lambda: "ray"}


def _config(path: str) -> dict[str, Any]:
    try:
        import tomllib as toml
    except ImportError:  # before Python 3.11
        import tomli as toml
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        config = toml.loads(text)
    except ValueError as error:  # a mistake in TOML tells its line
        raise ValueError(f"{path}: {error}") from None
    for name in ("recordings", "limits", "out"):
        if name not in config:
            raise ValueError(f"{path}: there is no '{name}'")
    for name, value in config.items():
        wrong = _wrong(name, value)
        if wrong:
            names = [line.split("=")[0].strip(" []") for line in text.splitlines()]
            at = f":{names.index(name) + 1}" if name in names else ""
            raise ValueError(f"{path}{at}: {wrong}")
    return {**config, "executor": _EXECUTORS[config.get("executor", "threads")]()}


#: What fields of a configuration take: a list of some kind, one of several values, or a type.
_FIELDS: dict[str, tuple[Any, str]] = {
    "recordings": ([(str, dict)], "give a list of paths, or of tables with a path"),
    "limits": ([str], "give a list of limits, such as '500m'"),
    "kernels": ([str], "give a list of kernels, such as '6.18'"),
    "seeds": ([range(2**64)], "give a list of whole numbers"),
    "out": (str, "give a folder"),
    "limits_per_task": (range(1, 1 << 20), "give a whole number from 1"),
    "executor": (_EXECUTORS, "give threads, processes or ray"),
}


def _wrong(name: str, value: Any) -> str | None:
    """What is wrong with the value of a field; None if it is right."""
    kind, instead = _FIELDS.get(name, (object, ""))
    if not _fits(value, kind):
        return f"{name} cannot be {value!r}: {instead}"
    if name in _FIELDS and name != "kernels":
        return None
    try:
        _cpumax.check(words("replay", ["recording"], {name: value}))
    except _cpumax.Error as error:
        return str(error)
    return None


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, list):
        return isinstance(value, list) and all(_fits(one, kind[0]) for one in value)
    if isinstance(kind, (range, dict)):
        return isinstance(value, int if isinstance(kind, range) else str) and value in kind
    return isinstance(value, kind)
