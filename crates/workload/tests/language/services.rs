//! `[[service]]` equals its long form.

use cpumax_workload::build::table;
use cpumax_workload::{CpuSet, Distribution, Workload, parse, print};
use std::time::Duration;

fn read(text: &str) -> Workload {
    parse(text, "service.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Asserts that both texts give one workload, and that it is printed in the long form.
fn same(short: &str, long: &str) {
    let head = "name = \"service\"\n[machine]\ncpus = 2\n[[group]]\npath = \"/web\"\n";
    let [short, long] = [short, long].map(|text| read(&format!("{head}{text}")));
    assert_eq!(short, long, "{}", print(&short));
    assert_eq!(read(&print(&short)), short);
    assert!(!print(&short).contains("[[service]]"));
}

#[test]
fn a_closed_one_has_clients_that_think() {
    same(
        r#"
        [[service]]
        name = "web"
        group = "/web"
        threads = 4
        work = { exponential = "3ms" }
        clients = 16
        think = { uniform = ["16ms", "32ms"] }
        "#,
        r#"
        [[channel]]
        name = "web"
        [[job]]
        name = "web"
        program = [
          { user = { exponential = "3ms" } },
          { done = true },
          { after = { uniform = ["16ms", "32ms"] }, post = "web", to = "web" },
        ]
        [[task]]
        name = "web"
        count = 4
        group = "/web"
        program = [{ forever = [{ serve = "web" }] }]
        [[source]]
        name = "web"
        channel = "web"
        every = { uniform = ["1ms", "2ms"] }
        count = 16
        jobs = ["web"]
        "#,
    );
}

#[test]
fn clients_that_do_not_think_ask_again_at_once() {
    same(
        "[[service]]\nname = \"web\"\nwork = \"3ms\"\nkernel = \"1ms\"\nclients = 2\n",
        r#"
        [[channel]]
        name = "web"
        [[job]]
        name = "web"
        program = [
          { user = "3ms" }, { kernel = "1ms" }, { done = true }, { post = "web", to = "web" },
        ]
        [[task]]
        name = "web"
        program = [{ forever = [{ serve = "web" }] }]
        [[source]]
        name = "web"
        channel = "web"
        every = "1us"
        count = 2
        jobs = ["web"]
        "#,
    );
}

#[test]
fn an_open_one_has_a_plan() {
    let long = |every: &str| {
        format!(
            r#"
            [[channel]]
            name = "web"
            [[job]]
            name = "web"
            program = [{{ user = "3ms" }}, {{ done = true }}]
            [[task]]
            name = "web"
            cpus = "1"
            program = [{{ forever = [{{ serve = "web" }}] }}]
            [[source]]
            name = "web"
            channel = "web"
            every = {every}
            jobs = ["web"]
            "#
        )
    };
    let short = |demand: &str| {
        format!("[[service]]\nname = \"web\"\nwork = \"3ms\"\ncpus = \"1\"\n{demand}\n")
    };
    same(&short("rate = \"200/s\""), &long("{ exponential = \"5ms\" }"));
    same(&short("every = \"5ms\""), &long("\"5ms\""));
}

#[test]
fn connections_that_belong_to_threads_are_shared_out() {
    let thread = |thread: u32, every: &str, count: u32| {
        format!(
            r#"
            [[channel]]
            name = "web/{thread}"
            [[job]]
            name = "web/{thread}"
            program = [
              {{ user = "3ms" }},
              {{ done = true }},
              {{ after = "12ms", post = "web/{thread}", to = "web/{thread}" }},
            ]
            [[task]]
            name = "web/{thread}"
            label = "web"
            program = [{{ forever = [{{ serve = "web/{thread}" }}] }}]
            [[source]]
            name = "web/{thread}"
            channel = "web/{thread}"
            every = "{every}"
            count = {count}
            jobs = ["web/{thread}"]
            "#
        )
    };
    same(
        "[[service]]\nname = \"web\"\nwork = \"3ms\"\nclients = 5\nthink = \"12ms\"\n\
         threads = 2\nshared = false\n",
        &(thread(0, "4ms", 3) + &thread(1, "6ms", 2)),
    );
    let open = read(
        "[[service]]\nname = \"web\"\nwork = \"3ms\"\nevery = \"5ms\"\nthreads = 3\n\
         shared = false\n",
    );
    let starts: Vec<u64> = open.sources.iter().map(|source| source.start_ns).collect();
    assert_eq!(starts, [0, 5_000_000, 10_000_000]);
    assert!(print(&open).contains("every = \"15ms\""));
}

#[test]
fn what_is_read_can_be_made_in_rust() {
    let ms = Duration::from_millis;
    let work = Distribution::LogNormal { median_ns: 1_000_000, sigma: 0.5 };
    let web = table("name", "web")
        .with("work", work)
        .with("clients", 3)
        .with("think", ms(10))
        .with("threads", 2)
        .with("group", "/web")
        .with("cpus", CpuSet(vec![1]))
        .with("kernel", ms(1))
        .with("shared", false);
    let plan = table("name", "plan").with("work", ms(2)).with("every", ms(20));
    let made = Workload::builder("service")
        .with("machine", table("cpus", 2))
        .part("group", table("path", "/web"))
        .part("service", web)
        .part("service", plan)
        .build()
        .unwrap();
    let text = r#"
        [machine]
        cpus = 2
        [[group]]
        path = "/web"
        [[service]]
        name = "web"
        group = "/web"
        threads = 2
        cpus = "1"
        work = { lognormal = { median = "1ms", sigma = 0.5 } }
        kernel = "1ms"
        clients = 3
        think = "10ms"
        shared = false
        [[service]]
        name = "plan"
        work = "2ms"
        every = "20ms"
        "#;
    assert_eq!(made, read(text));
}
