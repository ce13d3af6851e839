"""The same answers as the command, with fields as attributes."""

import subprocess
import sys

import cpumax
import pytest

LIMITED = """
duration = "1s"
[[group]]
path = "/web"
max = "20000 100000"
[[task]]
name = "hog"
group = "/web"
program = [{ forever = [{ user = "1ms" }] }]
"""


def test_a_replay_has_the_bytes_of_the_command(bursts, command):
    study = cpumax.replay(
        cpumax.read(bursts), limits=["500m", "5000 10000"], kernels=["6.12", "6.18"], over="20ms"
    )
    options = ["--set", "500m", "--set", "5000 10000", "--kernel", "6.12,6.18", "--over", "20ms"]
    assert study.to_json() == command("replay", bursts, *options, "--json", "-")
    lines = command("replay", bursts, *options, "--csv", "-").splitlines()
    assert study.to_csv().splitlines() == lines


def test_costs_and_choices_are_options_too(bursts, command):
    recording = cpumax.read(bursts, event_cost="300ns")
    study = cpumax.replay(recording, kernels="7.3", group="comm:*", scale_work=1.1, seed=3)
    options = ["--event-cost=300ns", "--group=comm:*", "--kernel=7.3", "--seed=3"]
    assert study.to_json() == command("replay", bursts, *options, "--scale-work=1.1", "--json", "-")


def test_a_cell_is_found_by_limit_and_kernel(bursts):
    study = cpumax.replay(cpumax.read(bursts), ["500m", "20000 100000"], ["6.12", "6.18"])
    assert len(study) == 6 and [cell.kernel for cell in study][:2] == ["6.12", "6.18"]
    cell = study["200m", "6.18"]
    assert cell.limit == "20/100" and cell.to_dict() == study[5].to_dict()
    p99 = cell.request_latency.p99
    assert p99.low <= p99.value <= p99.high and p99.doubts == cell.doubts
    assert cell.prediction.request_latency_ns.p99 == p99
    assert study["none", "6.12"].limit == "none"
    with pytest.raises(KeyError, match="several kernels: give one of 6.12, 6.18"):
        study["500m"]
    with pytest.raises(KeyError, match="was not tried; there is none on 6.12"):
        study["3"]
    with pytest.raises(AttributeError, match="no field 'p75': there are p50"):
        cell.request_latency.p75
    assert study.recorded.scenario == "bursts.perf.data"


def test_advice_has_the_bytes_of_the_command(web, command):
    advice = cpumax.advise([cpumax.read(web)], p99="50ms", kernels=["6.18"])
    words = ["advise", web, "--p99", "50ms", "--kernel", "6.18", "--json", "-"]
    assert advice.to_json() == command(*words)
    quota, period = advice.limit.split()
    assert int(period) == 100_000 and advice.millicpus == -(-int(quota) // 100)
    patch = advice.to_kubernetes("deploy/web", container="app")
    assert f"cpu: {advice.millicpus}m" in patch and "kubectl patch deploy/web" in patch
    assert "name: app" in patch and "CONTAINER" not in patch
    with pytest.raises(cpumax.QuestionError, match="needs its object"):
        advice.to_kubernetes("cronjob/web")
    assert "advised" in str(advice) and "\x1b" not in str(advice)
    with pytest.raises(cpumax.OptionError, match="give one of kubernetes, kubectl"):
        advice.in_form("windows")


def test_a_run_has_the_bytes_of_the_command(tmp_path, command):
    file = tmp_path / "web.toml"
    file.write_text(LIMITED)
    workload = cpumax.Workload.from_toml(LIMITED, str(file)).with_limit("/web", "500m")
    runs = cpumax.run(workload, "6.12,7.3", seed=2)
    words = ["run", str(file), "--set", "/web:500m", "--kernel", "6.12,7.3", "--seed", "2"]
    assert runs.to_json() == command(*words, "--json", "-")
    assert runs.passed and [one.kernel for one in runs] == ["6.12", "7.3"]
    one = cpumax.run(workload, kernel="7.3", seed=1)
    assert 400_000 < one.groups["/web"].usage_usec < 600_000


def test_a_simulation_stops_where_it_is_told():
    simulation = cpumax.Simulation(cpumax.Workload.from_toml(LIMITED), "6.18")
    assert simulation.step_until("10ms") and simulation.now == 10_000_000
    group = simulation.group("/web")
    assert group.usage == 10_000_000 and group.quota == 20_000_000 and group.runtime <= 10_000_000
    assert simulation.task("hog").doing == "Running" and simulation.cpu(0).running == "hog"
    assert simulation.step_until(50_000_000)
    assert simulation.group("/web").throttled_cpus == [0]
    assert not simulation.step_until("1s")
    assert simulation.outcome().groups["/web"].nr_throttled >= 9
    with pytest.raises(cpumax.Error, match="the run has ended"):
        simulation.now
    with pytest.raises(cpumax.SelectionError, match="no group /x"):
        cpumax.Simulation(cpumax.Workload.from_toml(LIMITED), "6.18").group("/x")


def test_pages_are_those_of_the_report(bursts):
    study = cpumax.replay(cpumax.read(bursts), "500m", "7.3")
    page = study.to_html()
    assert page.startswith("<!DOCTYPE html>") and "<svg" in page
    shown = study._repr_html_()
    assert shown.startswith("<iframe") and "&lt;svg" in shown and "<svg" not in shown


@pytest.mark.parametrize(
    "kind, message, call",
    [
        (cpumax.OptionError, "give a time", lambda rec: cpumax.replay(rec, over="soon")),
        (cpumax.OptionError, "unexpected argument", lambda rec: cpumax.replay(rec, ovr="1ms")),
        (cpumax.LimitError, "500", lambda rec: cpumax.replay(rec, "500")),
        (cpumax.KernelError, "2.6", lambda rec: cpumax.replay(rec, kernels="2.6")),
        (
            cpumax.SelectionError,
            "no recorded thread",
            lambda rec: cpumax.replay(rec, group="comm:x"),
        ),
        (cpumax.QuestionError, "the load cannot begin", lambda rec: cpumax.replay(rec, from_="9s")),
        (cpumax.QuestionError, "at least one", lambda rec: cpumax.advise([])),
        (cpumax.RecordingError, "no.data", lambda rec: cpumax.read("no.data")),
        (cpumax.WorkloadError, "a.toml", lambda rec: cpumax.Workload.from_toml("[", "a.toml")),
    ],
)
def test_each_error_has_its_class(bursts, kind, message, call):
    with pytest.raises(kind, match=message) as told:
        call(cpumax.read(bursts))
    assert isinstance(told.value, cpumax.Error)


def test_progress_is_told_and_may_stop_the_work(web):
    shares = []
    cpumax.replay(cpumax.read(web), kernels="5.4..7.3", progress=shares.append, jobs=1)
    assert shares and all(0 <= share <= 1 for share in shares)

    def stop(share):
        raise StopIteration("enough")

    with pytest.raises(StopIteration, match="enough"):
        cpumax.replay(cpumax.read(web), kernels="all", progress=stop)


def test_ctrl_c_ends_a_replay_within_a_second(web):
    code = f"""
import cpumax, os, signal, threading, time
recording = cpumax.read({web!r})
sent = []
def send():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.7, send).start()
try:
    cpumax.replay(recording, [f"{{n}}m" for n in range(100, 900, 2)], kernels="all")
except KeyboardInterrupt:
    print(time.monotonic() - sent[0])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 1.0


def test_importing_takes_little():
    code = """
import time
begin = time.process_time()
import cpumax
print(time.process_time() - begin)
"""
    line = [sys.executable, "-c", code]
    took = [float(subprocess.run(line, check=True, capture_output=True).stdout) for _ in range(5)]
    assert min(took) < 0.05, took


def test_a_limit_for_an_object_is_a_patch_that_the_api_server_takes(web, tmp_path):
    advice = cpumax.advise([cpumax.read(web)], p99="50ms", kernels=["6.18"])
    path = tmp_path / "job.yaml"
    container = "{name: app, image: app, resources: {requests: {cpu: 100m}, limits: {cpu: 2}}}"
    spec = "{template: {spec: {containers: [" + container + "]}}}"
    path.write_text(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\n"
        f"spec: {{schedule: '0 0 * * *', jobTemplate: {{spec: {spec}}}}}\n"
    )
    patch = advice.in_form("kubernetes", object=path)
    assert "jobTemplate:" in patch and f"cpu: {advice.millicpus}m" in patch
    with pytest.raises(cpumax.QuestionError, match="other"):
        advice.in_form("kubernetes", object=path, container="other")
