// SPDX-License-Identifier: GPL-2.0-only
//! The unix socket that answers for the scheduler: a line of JSON in, a line of JSON out.
//!
//! Nothing here waits: each client has a buffer and a deadline of its own, and what has come of it
//! is read when there is time. Nobody can hold up the scheduler's loader, nor another client.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::stats::{Answer, GroupStat, Request};

/// Where it is unless said otherwise.
pub const DEFAULT_PATH: &str = "/run/scx_cpumax.sock";
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// From when a client comes until it has asked, and from then until it takes the next part of its
/// answer.
const CLIENT_TIME: Duration = Duration::from_millis(500);
/// From when it comes until it has all of its answer, however large.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Most clients at a time; further ones wait until one of them is done.
const CLIENTS_MAX: usize = 64;

/// A listening socket; it disappears from the file system when dropped.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<Client>,
}

/// Somebody who has not got an answer yet.
struct Client {
    stream: UnixStream,
    deadline: Instant,
    last_deadline: Instant,
    request: Vec<u8>,
    /// What is still to be written of the answer, once there is one.
    reply: Option<Vec<u8>>,
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
        Ok(Self { listener, path: path.to_owned(), clients: Vec::new() })
    }

    /// Answers whoever has asked by now.
    pub fn serve(&mut self, mut answer: impl FnMut(&Request) -> Answer) {
        while self.clients.len() < CLIENTS_MAX
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                let (request, now) = (Vec::new(), Instant::now());
                let (deadline, last_deadline) = (now + CLIENT_TIME, now + ANSWER_TIME);
                self.clients.push(Client { stream, deadline, last_deadline, request, reply: None });
            }
        }
        // A client that goes away or dawdles gets nothing; that is its own affair.
        self.clients.retain_mut(|client| {
            matches!(client.go_on(&mut answer), Ok(false)) && Instant::now() < client.deadline
        });
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

impl Client {
    /// Reads and writes what is possible at once; whether it is done.
    fn go_on(&mut self, answer: &mut impl FnMut(&Request) -> Answer) -> io::Result<bool> {
        if self.reply.is_none() {
            let Some(line) = self.line()? else { return Ok(false) };
            let reply = match serde_json::from_slice(&line) {
                Ok(request) => answer(&request),
                Err(error) => Answer::Error(format!(
                    "{error}; a request is {{\"group\":\"/path\",\"tasks\":true}}, both optional"
                )),
            };
            let mut reply = serde_json::to_vec(&reply)?;
            reply.push(b'\n');
            self.reply = Some(reply);
        }
        let Some(reply) = &mut self.reply else { return Ok(false) };
        while !reply.is_empty() {
            match self.stream.write(reply) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    reply.drain(..written);
                    self.deadline = self.last_deadline.min(Instant::now() + CLIENT_TIME);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The request, once it is whole: up to the end of the line, of what it sends, or of what it
    /// may send.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut part = [0; 4096];
        loop {
            let read = match self.stream.read(&mut part) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.request.extend_from_slice(&part[..read]);
            let end = part[..read].contains(&b'\n');
            if end || read == 0 || self.request.len() >= REQUEST_BYTES_MAX {
                let mut request = std::mem::take(&mut self.request);
                let line_end = request.iter().position(|byte| *byte == b'\n');
                request.truncate(line_end.unwrap_or(request.len()));
                return Ok(Some(request));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_question_is_answered_and_nonsense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let mut server = Server::listen(&path).unwrap();
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

    /// Serves until the client has ended, and returns what it returns.
    fn served<T: Send + 'static>(
        server: &mut Server,
        client: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let client = thread::spawn(client);
        while !client.is_finished() {
            server.serve(|_| Answer::Groups(Vec::new()));
            thread::sleep(Duration::from_millis(1));
        }
        client.join().unwrap()
    }

    #[test]
    fn a_slow_client_delays_nobody_and_has_one_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let mut server = Server::listen(&path).unwrap();
        let slow = UnixStream::connect(&path).unwrap();
        // One says nothing, the other sends byte after byte.
        let _silent = UnixStream::connect(&path).unwrap();
        let begin = Instant::now();
        let dripping = thread::spawn(move || {
            let mut sent = 0;
            while (&slow).write_all(b" ").is_ok() && begin.elapsed() < CLIENT_TIME * 8 {
                sent += 1;
                thread::sleep(CLIENT_TIME / 10);
            }
            (begin.elapsed(), sent)
        });
        let at = path.clone();
        let took = served(&mut server, move || {
            let begin = Instant::now();
            ask(&at, &Request::default()).unwrap();
            begin.elapsed()
        });
        assert!(took < CLIENT_TIME / 2, "{took:?}");
        let (gone, sent) = served(&mut server, || dripping.join().unwrap());
        assert!(gone >= CLIENT_TIME && gone < CLIENT_TIME * 4 && sent > 3, "{gone:?} {sent}");
        assert!(server.clients.is_empty(), "the silent one is gone, too");
    }

    #[test]
    fn an_answer_may_be_large() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let mut server = Server::listen(&path).unwrap();
        let at = path.clone();
        let client = thread::spawn(move || ask(&at, &Request::default()));
        let begin = Instant::now();
        while !client.is_finished() {
            server.serve(|_| Answer::Error("x".repeat(8 << 20)));
            // As rarely as the loader looks: longer than a client has to ask.
            thread::sleep(CLIENT_TIME / 5);
        }
        let told = client.join().unwrap().unwrap_err().to_string();
        assert_eq!(told.len(), 8 << 20, "{:?}", begin.elapsed());
        assert!(begin.elapsed() > CLIENT_TIME, "it takes more than one deadline");
    }

    #[test]
    fn a_request_may_come_in_pieces_and_without_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let mut server = Server::listen(&path).unwrap();
        let answer = |pieces: Vec<Vec<u8>>| {
            let path = path.clone();
            move || {
                let mut stream = UnixStream::connect(path).unwrap();
                for piece in pieces {
                    let _ = stream.write_all(&piece);
                    thread::sleep(Duration::from_millis(20));
                }
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut line = String::new();
                let _ = BufReader::new(stream).read_line(&mut line);
                line
            }
        };
        let in_pieces = vec![b"{\"gro".to_vec(), b"up\":\"/a\"".to_vec(), b"}".to_vec()];
        assert_eq!(served(&mut server, answer(in_pieces)), "{\"groups\":[]}\n");
        let endless = served(&mut server, answer(vec![vec![b' '; REQUEST_BYTES_MAX]]));
        assert!(endless.contains("a request is"), "{endless}");
    }
}
