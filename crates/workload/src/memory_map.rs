//! Recognizes the lock that real tasks take for `mmap_lock`, the lock of the memory map that all
//! threads share.

use crate::model::{LockIx, LockKind, Op, Parts};

/// Name by which a workload's lock stands for the kernel's `mmap_lock`.
pub const MEMORY_MAP: &str = "mmap_lock";

impl Parts {
    /// Whether a lock stands for `mmap_lock`: an rwsem of that name that programs take only in
    /// system calls which do nothing but hold it for some kernel time.
    pub fn is_memory_map(&self, lock: LockIx) -> bool {
        let spec = &self.locks[lock as usize];
        let takes = |op: &Op| matches!(*op, Op::Lock { lock: taken, .. } if taken == lock);
        let holds_alone = |program: &[Op]| {
            let mut calls = 0;
            for call in program.windows(5) {
                let [Op::EnterKernel, held, Op::Kernel(_), Op::Unlock { .. }, Op::ExitKernel] =
                    call
                else {
                    continue;
                };
                calls += usize::from(takes(held));
            }
            calls == program.iter().filter(|op| takes(op)).count()
        };
        let is_taken = self.programs().any(|program| program.iter().any(takes));
        spec.name == MEMORY_MAP
            && spec.kind == LockKind::Rwsem
            && is_taken
            && self.programs().all(holds_alone)
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;

    fn is_it(lock: &str, kind: &str, program: &str) -> bool {
        let program = program.replace("UNLOCK", &format!("{{ unlock = \"{lock}\" }}"));
        let program =
            program.replace("LOCK", &format!("{{ lock = \"{lock}\", mode = \"write\" }}"));
        let text = format!(
            "duration = \"1s\"\n[[lock]]\nname = \"{lock}\"\nkind = \"{kind}\"\n[[task]]\n\
             name = \"t\"\n\
             program = [{{ user = \"1ms\" }}, {program}]\n"
        );
        let workload = parse(&text, "lock.toml").unwrap_or_else(|error| panic!("{error}"));
        workload.is_memory_map(0)
    }

    #[test]
    fn its_name_its_kind_and_its_use_tell() {
        let alone = "{ syscall = [LOCK, { kernel = \"1ms\" }, UNLOCK] }";
        assert!(is_it("mmap_lock", "rwsem", alone));
        assert!(!is_it("inode", "rwsem", alone));
        assert!(!is_it("mmap_lock", "percpu-rwsem", alone));
        let more = "{ syscall = [LOCK, { kernel = \"1ms\" }, UNLOCK, { kernel = \"1ms\" }] }";
        assert!(!is_it("mmap_lock", "rwsem", more));
        assert!(!is_it(
            "mmap_lock",
            "rwsem",
            &format!("{alone}, LOCK, {{ user = \"1ms\" }}, UNLOCK")
        ));
        assert!(!is_it("mmap_lock", "rwsem", "{ user = \"1ms\" }"), "nobody takes it");
    }
}
