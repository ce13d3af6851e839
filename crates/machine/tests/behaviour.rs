//! Behaviour of workloads in the model.

mod behaviour {
    mod accounting;
    mod balance;
    mod barging;
    mod channels;
    mod idle;
    mod interrupted;
    mod jobs;
    mod locks;
    mod microseconds;
    mod moves;
    mod observed;
    mod realtime;
    mod releases;
    mod simulation;
    mod spinning;
    mod support;
    mod threadgroup;
}
