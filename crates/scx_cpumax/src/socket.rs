// SPDX-License-Identifier: GPL-2.0-only
//! The unix socket that answers for the scheduler: a line of JSON in, a line of JSON out.
//!
//! One client at a time, each with little time and a short request: nobody can hold up the
//! scheduler's loader.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::stats::{Answer, GroupStat, Request};

/// Where it is unless said otherwise.
pub const DEFAULT_PATH: &str = "/run/scx_cpumax.sock";
const REQUEST_BYTES_MAX: u64 = 64 << 10;
const CLIENT_TIME: Duration = Duration::from_millis(500);

/// A listening socket; it disappears from the file system when dropped.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Listens at `path`, in place of a socket that a dead predecessor left there.
    pub fn listen(path: &Path) -> Result<Self> {
        if UnixStream::connect(path).is_ok() {
            bail!(
                "{}: another scx_cpumax answers there; choose another with --socket",
                path.display()
            );
        }
        if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
            fs::remove_file(path).with_context(|| format!("{}", path.display()))?;
        }
        let listener = UnixListener::bind(path).with_context(|| format!("{}", path.display()))?;
        // Statistics are no secret: whoever may read cpu.stat may read these.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))
            .with_context(|| format!("{}", path.display()))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Answers whoever asks now.
    pub fn serve(&self, mut answer: impl FnMut(&Request) -> Answer) {
        while let Ok((client, _)) = self.listener.accept() {
            // A client that goes away or dawdles gets nothing; that is its own affair.
            let _ = converse(&client, &mut answer);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Asks a running scheduler.
pub fn ask(path: &Path, request: &Request) -> Result<Vec<GroupStat>> {
    let mut stream = UnixStream::connect(path)
        .with_context(|| format!("{}: no scx_cpumax answers; is it running?", path.display()))?;
    writeln!(stream, "{}", serde_json::to_string(request)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match serde_json::from_str(&line)
        .with_context(|| format!("{}: not an answer", path.display()))?
    {
        Answer::Groups(groups) => Ok(groups),
        Answer::Error(error) => bail!("{error}"),
    }
}

fn converse(client: &UnixStream, answer: &mut impl FnMut(&Request) -> Answer) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(CLIENT_TIME))?;
    client.set_write_timeout(Some(CLIENT_TIME))?;
    let mut line = String::new();
    BufReader::new(client.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => answer(&request),
        Err(error) => Answer::Error(format!(
            "{error}; a request is {{\"group\":\"/path\",\"tasks\":true}}, both optional"
        )),
    };
    let mut client = client;
    writeln!(client, "{}", serde_json::to_string(&reply)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_question_is_answered_and_nonsense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let server = Server::listen(&path).unwrap();
        assert!(Server::listen(&path).is_err(), "two at one place");
        let at = path.clone();
        let client = thread::spawn(move || {
            let good = ask(&at, &Request::default());
            let mut stream = UnixStream::connect(&at).unwrap();
            writeln!(stream, "nonsense").unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            (good, line)
        });
        while !client.is_finished() {
            server.serve(|_| Answer::Groups(Vec::new()));
            thread::sleep(Duration::from_millis(5));
        }
        let (good, bad) = client.join().unwrap();
        assert_eq!(good.unwrap(), []);
        assert!(bad.contains("a request is"), "{bad}");
        drop(server);
        assert!(!path.exists());
    }
}
