//! The reason for which the kernel did not load the BPF program.

use crate::error::Error;
use crate::request::Request;
use std::error::Error as StdError;
use std::io;

/// The reason, as a sentence without its end.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl Refused {
    pub fn for_request(self, request: &Request) -> Error {
        Error::no_bpf(self.0, request)
    }

    pub fn because(why: &str) -> Refused {
        Refused(why.to_owned())
    }
}

/// Only the first line is for the user; the verifier's log follows it.
impl<E: StdError + 'static> From<E> for Refused {
    fn from(error: E) -> Refused {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
        while let Some(at) = cause {
            let of_system = at.downcast_ref::<io::Error>().map(io::Error::kind);
            if of_system == Some(io::ErrorKind::PermissionDenied) {
                return Refused::because(
                    "BPF is not allowed here: it needs root, or CAP_BPF and CAP_PERFMON",
                );
            }
            cause = at.source();
        }
        let text = error.to_string();
        Refused(format!("the kernel refuses the BPF program: {}", first_line(&text)))
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches('.')
}
