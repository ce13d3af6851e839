//! `/init` of a virtual machine, or a subprocess on the host: runs the jobs it is given.

use cpumax_guest::protocol::{FromGuest, Ready, ToGuest, VERSION};
use std::io::{BufRead, Write};

fn main() {
    let say = |message: &FromGuest| {
        let line = serde_json::to_string(message).unwrap_or_default();
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    say(&FromGuest::Ready(Ready { protocol: VERSION, ..Ready::default() }));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match serde_json::from_str::<ToGuest>(&line) {
            Ok(ToGuest::Job(_)) => {
                say(&FromGuest::Refused { reason: "no scenario can be run yet".to_owned() });
            }
            Ok(ToGuest::Quit) => return,
            Err(error) => say(&FromGuest::Failed { reason: format!("not a message: {error}") }),
        }
    }
}
