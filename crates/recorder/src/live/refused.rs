//! Why the BPF program is not in the kernel, for people.

use crate::error::Error;
use crate::request::Request;
use std::error::Error as StdError;
use std::io;

/// Why the BPF program is not in the kernel.
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

/// The first line tells; below it is what the verifier thought.
impl<E: StdError + 'static> From<E> for Refused {
    fn from(error: E) -> Refused {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
        while let Some(at) = cause {
            let of_system = at.downcast_ref::<io::Error>().map(io::Error::kind);
            if of_system == Some(io::ErrorKind::PermissionDenied) {
                return Refused::because(
                    "BPF may not be used here: it takes root, or CAP_BPF and CAP_PERFMON",
                );
            }
            cause = at.source();
        }
        let told = error.to_string();
        Refused(format!("the kernel does not take the BPF program: {}", first_line(&told)))
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches('.')
}
