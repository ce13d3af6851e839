"""Optuna over quota, period and burst: the cheapest limit by CPUs and by lateness.

python tune.py RECORDING [TRIALS]
"""

import sys

import cpumax
import optuna

#: The cost of a p99 that is a tenth longer than without a limit, in CPUs.
CPUS_FOR_A_TENTH = 0.05


def tune(recording, trials=30, kernel="7.3"):
    """The best trial: its parameters are quota_percent, period_ms and burst_percent."""
    none = cpumax.replay(recording, "max", kernel)[0]
    used, base_ns = none.cpus.high, none.request_latency.p99.value

    def cost(trial):
        cpus = used * trial.suggest_int("quota_percent", 80, 300, step=10) / 100
        period_usec = 1_000 * trial.suggest_categorical("period_ms", [5, 10, 20, 50, 100])
        quota_usec = max(1_000, round(cpus * period_usec))
        burst_usec = quota_usec * trial.suggest_int("burst_percent", 0, 100, step=50) // 100
        limit = f"{quota_usec} {period_usec},cpu.max.burst={burst_usec}"
        cell = cpumax.replay(recording, limit, kernel)[limit]
        late = max(0.0, cell.request_latency.p99.high / base_ns - 1)
        return quota_usec / period_usec + 10 * CPUS_FOR_A_TENTH * late

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
    study.optimize(cost, trials)
    return study.best_trial


if __name__ == "__main__":
    best = tune(cpumax.read(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30)
    print(f"cost {best.value:.3f}: {best.params}")
