//! Runs a program of the user in the virtual machine instead of scenarios, and passes its output on
//! as it comes.

use cpumax_protocol::{Command, FromGuest};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, Child, Stdio};

/// Search path of the program and of its children.
const PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";
/// Most bytes of output in one message.
const CHUNK_BYTES: usize = 16 << 10;

/// Starts the program without input and with an environment of its own, passes each piece of its
/// output to `say` and waits for its end. Returns the last message: `Exited` with its status,
/// `Refused` if it cannot be started, `Failed` if waiting failed.
pub fn run(command: &Command, say: &mut dyn FnMut(&FromGuest)) -> FromGuest {
    let Some((program, arguments)) = command.words.split_first() else {
        return FromGuest::Refused { reason: "no command".to_owned() };
    };
    let started = process::Command::new(program)
        .args(arguments)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/"), ("TERM", "dumb")])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return FromGuest::Refused { reason: format!("{program}: {error}") },
    };
    forward_output(&mut child, say);
    match child.wait() {
        Ok(status) => FromGuest::Exited { status: shell_exit_status(status) },
        Err(error) => FromGuest::Failed { reason: format!("{program}: {error}") },
    }
}

/// Passes output on to `say` until the program, and every process that it started, has closed
/// standard output and error.
fn forward_output(child: &mut Child, say: &mut dyn FnMut(&FromGuest)) {
    use std::os::fd::AsRawFd;
    let file = |end: OwnedFd| Some(File::from(end));
    let mut ends = [
        child.stdout.take().and_then(|out| file(out.into())),
        child.stderr.take().and_then(|err| file(err.into())),
    ];
    let mut bytes = vec![0; CHUNK_BYTES];
    while ends.iter().any(Option::is_some) {
        let poll = |end: &Option<File>| libc::pollfd {
            fd: end.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polled = [poll(&ends[0]), poll(&ends[1])];
        // SAFETY: there are two elements.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
        for (index, end) in ends.iter_mut().enumerate() {
            let Some(file) = end.as_mut().filter(|_| polled[index].revents != 0) else { continue };
            match file.read(&mut bytes) {
                Ok(count @ 1..) => {
                    let text = bytes[..count].iter().copied().map(char::from).collect();
                    say(&FromGuest::Output { is_error: index == 1, text });
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => *end = None,
            }
        }
    }
}

/// The exit status as a shell shows it: that of the program, or 128 plus the signal that ended it.
fn shell_exit_status(status: process::ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_here(words: &[&str]) -> (Vec<u8>, Vec<u8>, FromGuest) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let words = words.iter().map(|&word| word.to_owned()).collect();
        let end = run(&Command { words }, &mut |message| {
            let FromGuest::Output { is_error, text } = message else { panic!("{message:?}") };
            let bytes = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap());
            if *is_error { err.extend(bytes) } else { out.extend(bytes) }
        });
        (out, err, end)
    }

    #[test]
    fn output_and_exit_status_are_passed_on() {
        let (out, err, end) =
            run_here(&["/bin/sh", "-c", "printf 'a\\377\\n'; echo b >&2; exit 7"]);
        assert_eq!((out.as_slice(), err.as_slice()), (b"a\xff\n".as_slice(), b"b\n".as_slice()));
        assert_eq!(end, FromGuest::Exited { status: 7 });
        let (_, _, end) = run_here(&["/bin/sh", "-c", "kill -9 $$"]);
        assert_eq!(end, FromGuest::Exited { status: 137 });
        let (_, _, end) = run_here(&["/nowhere/x"]);
        assert!(matches!(end, FromGuest::Refused { reason } if reason.contains("/nowhere/x")));
    }
}
