//! An interrupted run stops soon, even if many events coincide.

use super::support::{plain, workload};
use cpumax_machine::{Error, run};
use std::ops::ControlFlow;

/// Two sources whose tokens always coincide.
const TWINS: &str = r#"
duration = "24h"
[[channel]]
name = "c"
[[source]]
name = "a"
channel = "c"
every = "10us"
[[source]]
name = "b"
channel = "c"
every = "10us"
[[task]]
name = "w"
program = [{ sleep = "23h" }, { user = "1ms" }]
"#;

#[test]
fn events_that_come_in_pairs_do_not_pass_over_the_request() {
    for text in [TWINS.to_owned(), TWINS.replace("name = \"b\"", "name = \"b\"\nstart = \"1s\"")] {
        let mut asked = 0;
        let mut stop = |_| {
            asked += 1;
            if asked < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let ended = run(&workload(&text), &plain("6.18"), None, Some(&mut stop));
        let Err(Error::Interrupted(at_ns)) = ended else { panic!("{ended:?}") };
        // Two events every 10 us, and some more.
        assert!(at_ns < 1_100_000_000, "{at_ns}");
    }
}
