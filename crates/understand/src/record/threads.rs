//! Names and numbers of threads and connections in a recording.

use crate::plan::{Plan, Server};

/// Source of a thread's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Serves,
    /// Requests of a connection that was accepted for it.
    Child,
    /// Work passed in memory.
    Pool,
    Clock,
    Client,
}

/// A thread, as a recording names it.
#[derive(Debug, Clone)]
pub struct Thread {
    pub comm: String,
    pub pid: u32,
    pub tid: u32,
    pub role: Role,
    /// Number among the threads of this name.
    pub number: Option<u64>,
}

/// Descriptor of an accepted connection.
pub const ACCEPTED: u64 = 10;
/// Descriptor by which a pool wakes its event loop.
pub const EVENTFD: u64 = 7;
/// Descriptors of connections: first number, and distance between kinds (requests, then back ends
/// and others).
const FIRST: u64 = 10;
const EACH: u64 = 100;

impl Thread {
    pub fn of(plan: &Plan, task: usize, name: &str) -> Thread {
        let (comm, number) = match name.split_once(['-', '/']) {
            Some((comm, number)) => (comm, number.parse().ok()),
            None => (name, None),
        };
        let role = match comm {
            "srvkid" => Role::Child,
            "srvwork" | "srvgc" | "srvspin" => Role::Pool,
            "srvtick" => Role::Clock,
            "client" => Role::Client,
            _ => Role::Serves,
        };
        let processes = ["srv", "srvdb", "srvapp", "srvproxy", "client", "db"];
        let process = match comm {
            "srvio" | "srvwork" | "srvgc" | "srvspin" | "srvtick" => "srv",
            comm => comm,
        };
        let at = processes.iter().position(|other| *other == process).unwrap_or(processes.len());
        let (own, task) = (100_000 + task as u32, task as u32);
        let pid = 1000 * (at as u32 + 1);
        let (pid, tid) = match comm {
            "srvkid" => (own, own),
            "srv" if plan.processes => (own, own),
            _ => (pid, pid + task),
        };
        Thread { comm: comm.to_owned(), pid, tid, role, number }
    }

    /// Whether it has connections to clients.
    pub fn is_served(&self) -> bool {
        matches!(self.role, Role::Serves | Role::Child)
            && matches!(&*self.comm, "srv" | "srvio" | "srvproxy" | "srvkid")
    }

    /// The descriptor through which a job goes to or from this thread; `None`: through memory.
    pub fn descriptor(&self, job: &str) -> Option<u64> {
        let (kind, at) = job.rsplit_once('-')?;
        let at: u64 = at.parse().ok()?;
        if self.role == Role::Child {
            return Some(ACCEPTED);
        }
        let place = match kind {
            "req" | "ans" | "con" => 0,
            "app" | "appans" => 1,
            "db" | "dbans" => 2,
            "db0" | "dbans0" => 3,
            "db1" | "dbans1" => 4,
            "db2" | "dbans2" => 5,
            "back" => return Some(EVENTFD),
            _ => return None,
        };
        Some(FIRST + EACH * place + at)
    }

    /// Whether it serves one connection, and reads without polling.
    pub fn blocks(&self, server: Server) -> bool {
        self.role == Role::Child || self.comm == "srv" && server.is_per_connection()
    }
}
