//! The tracepoints that are understood, and the meaning of `prev_state`.

use crate::event::PrevState;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracepoint {
    Switch,
    Waking,
    Wakeup,
    WakeupNew,
    Migrate,
    Fork,
    Runtime,
    SysEnter,
    SysExit,
    IrqEnter,
    IrqExit,
    TimerEnter,
    TimerExit,
    SoftirqEnter,
    SoftirqExit,
    SocketSent,
    SocketReceived,
    DataReady,
    SocketState,
    Other,
}

/// Message where a file has no `sched_switch`.
pub(crate) const RECORD_WITH: &str =
    "`perf sched record -a --all-cgroups -- sleep 10` records all that is needed";

/// Message where a file holds only some switches.
pub(crate) const SWITCHES_SAMPLED: &str = "it holds a sample of the thread switches (`-F`, or `-c` \
    above 1), not each; `perf sched record -a --all-cgroups -- sleep 10` records all";

/// Message where thread switches are records of perf's own.
pub(crate) const SWITCH_RECORDS: &str = "it holds switches as records of perf (`--switch-events`), \
    which do not tell why threads leave a CPU and who wakes them";

impl Tracepoint {
    /// The tracepoint of this system and name: a probe in another system may have the name of a
    /// tracepoint.
    pub fn from_system(system: &str, name: &str) -> Self {
        let tracepoint = Tracepoint::from_name(name);
        if tracepoint.system() == system { tracepoint } else { Tracepoint::Other }
    }

    /// The system to which the tracepoint belongs.
    fn system(self) -> &'static str {
        match self {
            Tracepoint::Switch
            | Tracepoint::Waking
            | Tracepoint::Wakeup
            | Tracepoint::WakeupNew
            | Tracepoint::Migrate
            | Tracepoint::Fork
            | Tracepoint::Runtime => "sched",
            Tracepoint::SysEnter | Tracepoint::SysExit => "raw_syscalls",
            Tracepoint::IrqEnter
            | Tracepoint::IrqExit
            | Tracepoint::SoftirqEnter
            | Tracepoint::SoftirqExit => "irq",
            Tracepoint::TimerEnter | Tracepoint::TimerExit => "timer",
            Tracepoint::SocketSent
            | Tracepoint::SocketReceived
            | Tracepoint::DataReady
            | Tracepoint::SocketState => "sock",
            Tracepoint::Other => "",
        }
    }

    /// The tracepoint of this name, whatever its system; [`Tracepoint::Other`] if it is not
    /// understood.
    pub fn from_name(name: &str) -> Self {
        match name {
            "sched_switch" => Tracepoint::Switch,
            "sched_waking" => Tracepoint::Waking,
            "sched_wakeup" => Tracepoint::Wakeup,
            "sched_wakeup_new" => Tracepoint::WakeupNew,
            "sched_migrate_task" => Tracepoint::Migrate,
            "sched_process_fork" => Tracepoint::Fork,
            "sched_stat_runtime" => Tracepoint::Runtime,
            "sys_enter" => Tracepoint::SysEnter,
            "sys_exit" => Tracepoint::SysExit,
            "irq_handler_entry" => Tracepoint::IrqEnter,
            "irq_handler_exit" => Tracepoint::IrqExit,
            "hrtimer_expire_entry" => Tracepoint::TimerEnter,
            "hrtimer_expire_exit" => Tracepoint::TimerExit,
            "softirq_entry" => Tracepoint::SoftirqEnter,
            "softirq_exit" => Tracepoint::SoftirqExit,
            "sock_send_length" => Tracepoint::SocketSent,
            "sock_recv_length" => Tracepoint::SocketReceived,
            "sk_data_ready" => Tracepoint::DataReady,
            "inet_sock_set_state" => Tracepoint::SocketState,
            _ => Tracepoint::Other,
        }
    }
}

/// Why a thread left the CPU, by the letters of `prev_state`, of which the kernel joins several by
/// `|`. In this order: dead (`X`, `Z`), idle (`I`), blocked (`D`), stopped (`T`), runnable (`R`,
/// `+` or no letter), and else sleeping.
pub(crate) fn prev_state(letters: &str) -> PrevState {
    let has = |set: &str| letters.chars().any(|c| set.contains(c));
    if has("XZx") {
        PrevState::Dead
    } else if has("I") {
        PrevState::Idle
    } else if has("D") {
        PrevState::Blocked
    } else if has("Tt") {
        PrevState::Stopped
    } else if letters.is_empty() || has("R+") {
        PrevState::Runnable
    } else {
        PrevState::Sleeping
    }
}

/// Why a thread left the CPU, by the number of `prev_state` in current kernels. For files that
/// print no letters and describe no fields.
pub(crate) fn prev_state_by_number(state: u64) -> PrevState {
    let bits = [(0x30, "X"), (0x80, "I"), (0x2, "D"), (0xc, "T"), (0x41, "S")];
    let letters = bits.iter().find(|(bit, _)| state & bit != 0).map_or("R", |(_, letter)| letter);
    prev_state(letters)
}

#[cfg(test)]
mod tests {
    use super::prev_state;
    use crate::event::PrevState;

    #[test]
    fn reads_states() {
        for (letters, want) in [
            ("R", PrevState::Runnable),
            ("R+", PrevState::Runnable),
            ("S", PrevState::Sleeping),
            ("D", PrevState::Blocked),
            ("D|K", PrevState::Blocked),
            ("I", PrevState::Idle),
            ("P", PrevState::Sleeping),
            ("t", PrevState::Stopped),
            ("X", PrevState::Dead),
            ("Z", PrevState::Dead),
            ("", PrevState::Runnable),
        ] {
            assert_eq!(prev_state(letters), want, "{letters}");
        }
    }
}
