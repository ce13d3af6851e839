//! Recordings from outside: what they become, and what is refused.

mod behaviour {
    mod clients;
    mod forms;
    mod implausible;
    mod perf;
    mod perfetto;
    mod refuses;
    mod requests;
    mod robust;
    mod same_either_way;
    mod text;
    mod text_forms;
    mod tiers;
    mod wprof;
}

mod support {
    pub mod perfetto;
}
