// SPDX-License-Identifier: GPL-2.0-only
//! The unix socket of the scheduler: a line of JSON in, a line of JSON out.
//!
//! A thread serves it, so the loader's loop waits for no client. Clients do not wait for each other
//! either: each has its own buffer and deadlines, and reads and writes never block. One answer is
//! worked out at a time, for all clients of a user with the same request. Root's come first, then
//! those of other users in turn. Memory is bounded by the number of clients and by the bytes of
//! held answers. When there are too many clients, the user with the most of them loses one.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::answer::{self, ANSWER_BYTES_MAX, Answer, Request};
use crate::escape::shown;

/// Longest request, bytes: room for a cgroup's path.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Time for a client to send its request, and then to take each part of the answer.
pub const CLIENT_TIME: Duration = Duration::from_millis(500);
/// Time for a client to take the whole answer; the short one holds while others wait for room.
const ANSWER_TIME: Duration = Duration::from_secs(10);
const ANSWER_TIME_SHORT: Duration = Duration::from_millis(250);
/// Most clients at a time.
pub const CLIENTS_MAX: usize = 64;
/// Most clients accepted in one round.
const ACCEPTED_MAX: usize = 16;
/// Most bytes of held answers while another one is worked out.
const HELD_BYTES_MAX: usize = 2 << 20;
/// An answer is used again for this time, or for the time that it took to work out if longer.
const FRESH: Duration = Duration::from_millis(50);
/// Pause between rounds, so that a flood of clients takes only a part of a CPU.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest wait until the end is noticed, ms.
const LOOK_MS: i32 = 50;

/// A listening socket; dropping it removes its file.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode number of the socket's file.
    file: (u64, u64),
    clients: Vec<Client>,
    /// Answers that are fresh or still held by a client.
    answers: Vec<Given>,
    /// User of the last answer that was worked out.
    last_uid: u32,
}

/// A client that does not have its whole answer yet.
struct Client {
    stream: UnixStream,
    uid: u32,
    /// When the client is dropped.
    deadline: Instant,
    state: State,
}

enum State {
    Asking(Vec<u8>),
    Asked(Request),
    Taking { bytes: Arc<Vec<u8>>, taken: usize, since: Instant },
}

/// An answer that has been worked out.
struct Given {
    uid: u32,
    request: Request,
    bytes: Arc<Vec<u8>>,
    fresh_until: Instant,
}

impl Server {
    /// Listens at `path`; replaces a socket at which nobody listens any more.
    pub fn listen(path: &Path) -> Result<Self> {
        let at = shown(path);
        remove_dead_socket(path)?;
        let listener = UnixListener::bind(path).with_context(|| at.clone())?;
        // Any user may ask; the answer depends on the user.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).with_context(|| at.clone())?;
        listener.set_nonblocking(true)?;
        let meta = fs::symlink_metadata(path).with_context(|| at)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (meta.dev(), meta.ino()),
            clients: Vec::new(),
            answers: Vec::new(),
            last_uid: 0,
        })
    }

    /// Serves clients until `stop` is set.
    pub fn serve(&mut self, stop: &AtomicBool, mut answer: impl FnMut(u32, &Request) -> Vec<u8>) {
        while !stop.load(Ordering::Relaxed) {
            self.wait();
            self.round(&mut answer);
            thread::sleep(PAUSE);
        }
    }

    /// Waits until a client connects, sends or can receive.
    fn wait(&self) {
        let wanted = |client: &Client| match client.state {
            State::Asking(_) => libc::POLLIN,
            State::Asked(_) => 0,
            State::Taking { .. } => libc::POLLOUT,
        };
        let poll = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut fds = vec![poll(self.listener.as_raw_fd(), libc::POLLIN)];
        fds.extend(self.clients.iter().map(|c| poll(c.stream.as_raw_fd(), wanted(c))));
        let asked = self.clients.iter().any(|client| matches!(client.state, State::Asked(_)));
        let timeout = if asked { 0 } else { LOOK_MS };
        // SAFETY: as many records as it is told, which live through the call.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
    }

    /// One round: accepts clients, reads and writes without blocking, works out one answer.
    pub fn round(&mut self, answer: &mut impl FnMut(u32, &Request) -> Vec<u8>) {
        self.accept();
        self.clients.retain_mut(|client| client.read_request().is_ok());
        let now = Instant::now();
        self.answers.retain(|given| given.fresh_until > now || Arc::strong_count(&given.bytes) > 1);
        self.deliver(now);
        if let Some(next) = self.next_to_answer() {
            self.make_room_for_answer();
            if self.held_bytes() <= HELD_BYTES_MAX {
                self.work_out(next, answer);
                self.deliver(Instant::now());
            }
        }
        self.clients.retain_mut(|client| matches!(client.write_answer(), Ok(false)));
        let now = Instant::now();
        // Clients that are gone or late are dropped.
        self.clients
            .retain(|client| matches!(client.state, State::Asked(_)) || now < client.deadline);
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            let Ok((stream, _)) = self.listener.accept() else { return };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() >= CLIENTS_MAX {
                self.clients.remove(self.client_to_drop());
            }
            let (uid, deadline) = (user_of(&stream), Instant::now() + CLIENT_TIME);
            self.clients.push(Client { stream, uid, deadline, state: State::Asking(Vec::new()) });
        }
    }

    /// Index of a client to drop, of the user with the most: one without a request, or the oldest.
    fn client_to_drop(&self) -> usize {
        let count = |uid| self.clients.iter().filter(|client| client.uid == uid).count();
        let most = self.clients.iter().map(|client| count(client.uid)).max();
        let of_most = |client: &&Client| Some(count(client.uid)) == most;
        let asks = |client: &Client| matches!(client.state, State::Asking(_));
        let all = || self.clients.iter().enumerate().filter(|(_, client)| of_most(client));
        let found = all().find(|(_, client)| asks(client)).or_else(|| all().next());
        found.map_or(0, |(at, _)| at)
    }

    /// Index of the client to answer next: root's, or one of another user than the last.
    fn next_to_answer(&self) -> Option<usize> {
        let waits = |client: &Client| matches!(client.state, State::Asked(_));
        let turn = |client: &Client| (client.uid != 0, client.uid == self.last_uid);
        let waiting = self.clients.iter().enumerate().filter(|(_, client)| waits(client));
        waiting.min_by_key(|(_, client)| turn(client)).map(|(at, _)| at)
    }

    fn held_bytes(&self) -> usize {
        self.answers.iter().map(|given| given.bytes.len()).sum()
    }

    /// Drops clients that hold large answers for long, while others wait for room.
    fn make_room_for_answer(&mut self) {
        if self.held_bytes() <= HELD_BYTES_MAX {
            return;
        }
        let now = Instant::now();
        self.clients.retain(|client| match client.state {
            State::Taking { since, .. } => now < since + ANSWER_TIME_SHORT,
            _ => true,
        });
        self.answers.retain(|given| Arc::strong_count(&given.bytes) > 1);
    }

    fn work_out(&mut self, at: usize, answer: &mut impl FnMut(u32, &Request) -> Vec<u8>) {
        let State::Asked(request) = &self.clients[at].state else { return };
        let (uid, request, began) = (self.clients[at].uid, request.clone(), Instant::now());
        let mut bytes = answer(uid, &request);
        if bytes.len() > ANSWER_BYTES_MAX + REQUEST_BYTES_MAX {
            bytes = Answer::Error("the answer is too long".to_owned()).line();
        }
        let (bytes, took) = (Arc::new(bytes), began.elapsed());
        let fresh_until = began + took + took.max(FRESH);
        self.answers.push(Given { uid, request, bytes, fresh_until });
        self.last_uid = uid;
    }

    /// Gives each waiting client a fresh answer to the same request of its user.
    fn deliver(&mut self, now: Instant) {
        for client in &mut self.clients {
            let State::Asked(request) = &client.state else { continue };
            let like = |given: &&Given| given.uid == client.uid && given.request == *request;
            let fresh = |given: &&Given| given.fresh_until > now;
            if let Some(given) = self.answers.iter().filter(fresh).find(like) {
                client.give(&given.bytes, now);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let here = fs::symlink_metadata(&self.path);
        if here.is_ok_and(|meta| (meta.dev(), meta.ino()) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket at which nobody listens; refuses anything else.
fn remove_dead_socket(path: &Path) -> Result<()> {
    let at = shown(path);
    let kind = match fs::symlink_metadata(path) {
        Ok(meta) => meta.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| at),
    };
    if !kind.is_socket() {
        bail!("{at}: this file is not a socket and is kept; choose another path with --socket");
    }
    match answer::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(|| at)
        }
        _ => {
            bail!("{at}: another program listens there already; choose another path with --socket")
        }
    }
}

/// User at the other end; `u32::MAX` if unknown.
fn user_of(stream: &UnixStream) -> u32 {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: fills in a record of the length given, which is plain numbers.
    let failed = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if failed == 0 { peer.uid } else { u32::MAX }
}

impl Client {
    /// Reads more of the request: to the end of its line, of the input, or of the allowed length.
    fn read_request(&mut self) -> io::Result<()> {
        let State::Asking(request) = &mut self.state else { return Ok(()) };
        let mut part = [0; 4096];
        loop {
            let read = match self.stream.read(&mut part) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            request.extend_from_slice(&part[..read]);
            let end = part[..read].contains(&b'\n');
            if end || read == 0 || request.len() >= REQUEST_BYTES_MAX {
                break;
            }
        }
        let line_end = request.iter().position(|byte| *byte == b'\n').unwrap_or(request.len());
        match serde_json::from_slice(&request[..line_end]) {
            Ok(request) => self.state = State::Asked(request),
            Err(error) => {
                let told = Answer::Error(format!(
                    "{error}; a request is {{\"group\":\"/path\",\"tasks\":true}}, both optional"
                ));
                self.give(&Arc::new(told.line()), Instant::now());
            }
        }
        Ok(())
    }

    fn give(&mut self, bytes: &Arc<Vec<u8>>, now: Instant) {
        self.deadline = now + CLIENT_TIME;
        self.state = State::Taking { bytes: Arc::clone(bytes), taken: 0, since: now };
    }

    /// Writes more of the answer; returns whether that was all.
    fn write_answer(&mut self) -> io::Result<bool> {
        let State::Taking { bytes, taken, since } = &mut self.state else { return Ok(false) };
        while *taken < bytes.len() {
            match self.stream.write(&bytes[*taken..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    *taken += written;
                    self.deadline = (*since + ANSWER_TIME).min(Instant::now() + CLIENT_TIME);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
