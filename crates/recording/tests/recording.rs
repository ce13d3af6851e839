//! Recordings as a user reads them: their workloads, and the refused ones.

mod behaviour {
    mod clients;
    mod forms;
    mod gaps;
    mod implausible;
    mod perf;
    mod perfetto;
    mod readers;
    mod refuses;
    mod requests;
    mod robust;
    mod same_either_way;
    mod text;
    mod text_forms;
    mod tiers;
    mod traces;
    mod wprof;
}

mod support {
    pub mod perfetto;
}
