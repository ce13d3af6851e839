// SPDX-License-Identifier: GPL-2.0-only
//! Tests the scheduler's socket without a scheduler: which clients it accepts and how it answers.

#[allow(dead_code, missing_docs, reason = "used by the program")]
#[path = "../src/answer.rs"]
mod answer;
#[allow(dead_code, missing_docs, reason = "used by the program")]
#[path = "../src/escape.rs"]
mod escape;
#[allow(dead_code, missing_docs, reason = "used by the program")]
#[path = "../src/socket.rs"]
mod socket;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use answer::{ANSWER_BYTES_MAX, Answer, Request, ask};
use socket::{CLIENT_TIME, REQUEST_BYTES_MAX, Server};

fn nothing(_: u32, _: &Request) -> Vec<u8> {
    Answer::Groups(Vec::new()).line()
}

/// Serves requests while `client` runs, and returns the client's result.
fn served<T: Send>(
    server: &mut Server,
    answer: impl FnMut(u32, &Request) -> Vec<u8> + Send,
    client: impl FnOnce() -> T,
) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| server.serve(&over, answer));
        let told = client();
        over.store(true, Ordering::Relaxed);
        told
    })
}

fn listening() -> (tempfile::TempDir, PathBuf, Server) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = Server::listen(&path).unwrap();
    (dir, path, server)
}

/// Sends some bytes, which need not be a line, and reads one line.
fn exchange(path: &Path, sent: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    let _ = stream.write_all(sent);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}

#[test]
fn a_question_is_answered_and_nonsense_is_refused() {
    let (_dir, path, mut server) = listening();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    assert!(Server::listen(&path).is_err(), "two at one place");
    let good = served(&mut server, nothing, || ask(&path, &Request::default()));
    assert_eq!(good.unwrap(), []);
    let bad = served(&mut server, nothing, || exchange(&path, b"nonsense\n"));
    assert!(bad.contains("a request is"), "{bad}");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn nothing_but_a_dead_socket_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "precious").unwrap();
    fs::create_dir(at("folder")).unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    let pipe = std::ffi::CString::new(at("pipe").to_str().unwrap()).unwrap();
    // SAFETY: a C string that lives through the call.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    for name in ["file", "folder", "link", "pipe"] {
        let error = Server::listen(&at(name)).err().unwrap().to_string();
        assert!(error.contains("this file is not a socket and is kept"), "{name}: {error}");
        assert!(fs::symlink_metadata(at(name)).is_ok(), "{name}");
    }
    // A datagram socket of another program.
    let _other = UnixDatagram::bind(at("datagrams")).unwrap();
    let error = Server::listen(&at("datagrams")).err().unwrap().to_string();
    assert!(error.contains("another program listens there already"), "{error}");
    // A socket left by a server that died.
    drop(UnixListener::bind(at("dead")).unwrap());
    let server = Server::listen(&at("dead")).unwrap();
    // The server does not remove a file that has taken the socket's place.
    fs::remove_file(at("dead")).unwrap();
    fs::write(at("dead"), "precious").unwrap();
    drop(server);
    assert!(at("dead").exists());
}

#[test]
fn a_name_in_a_refusal_does_nothing_to_a_terminal() {
    let (_dir, path, mut server) = listening();
    let refuse = |_: u32, _: &Request| Answer::Error("no \u{1b}[2J\n\u{202e}x".to_owned()).line();
    let told = served(&mut server, refuse, || ask(&path, &Request::default()));
    assert_eq!(told.unwrap_err().to_string(), "no \\u{1b}[2J\\n\\u{202e}x");
}

#[test]
fn a_client_without_an_answer_gives_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let told = ask(&path, &Request::default()).unwrap_err().to_string();
    assert!(told.contains("no answer for 2 s"), "{told}");
    // The listener accepts nobody, and its backlog is full.
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
    let waiting: Vec<_> = std::iter::from_fn(|| answer::connect(&path).ok()).take(9).collect();
    assert!(waiting.len() < 9, "there is always room for another");
    let told = ask(&path, &Request::default()).unwrap_err().to_string();
    assert!(told.contains("no scx_cpumax answers"), "{told}");
}

#[test]
fn a_slow_client_delays_nobody_and_has_one_deadline() {
    let (_dir, path, mut server) = listening();
    let slow = UnixStream::connect(&path).unwrap();
    // One client sends nothing, the other one byte at a time.
    let mut silent = UnixStream::connect(&path).unwrap();
    let (took, gone, sent) = served(&mut server, nothing, || {
        let begin = Instant::now();
        ask(&path, &Request::default()).unwrap();
        let took = begin.elapsed();
        let mut sent = 0;
        while (&slow).write_all(b" ").is_ok() && begin.elapsed() < CLIENT_TIME * 8 {
            sent += 1;
            thread::sleep(CLIENT_TIME / 10);
        }
        (took, begin.elapsed(), sent)
    });
    assert!(took < CLIENT_TIME / 2, "{took:?}");
    assert!(gone >= CLIENT_TIME * 9 / 10 && gone < CLIENT_TIME * 4 && sent > 3, "{gone:?} {sent}");
    silent.set_read_timeout(Some(CLIENT_TIME)).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "the silent one is gone, too");
}

#[test]
fn an_answer_may_be_large() {
    let (_dir, path, mut server) = listening();
    let size = ANSWER_BYTES_MAX - 100;
    let large = |_: u32, _: &Request| Answer::Error("x".repeat(size)).line();
    let told = served(&mut server, large, || ask(&path, &Request::default()));
    assert_eq!(told.unwrap_err().to_string().len(), size);
    let huge = |_: u32, _: &Request| Answer::Error("x".repeat(2 * ANSWER_BYTES_MAX)).line();
    let told = served(&mut server, huge, || ask(&path, &Request::default()));
    assert!(told.unwrap_err().to_string().contains("too long"));
}

#[test]
fn a_request_may_come_in_pieces_and_without_an_end() {
    let (_dir, path, mut server) = listening();
    let in_pieces = served(&mut server, nothing, || {
        let mut stream = UnixStream::connect(&path).unwrap();
        for piece in ["{\"gro", "up\":\"/a\"", "}"] {
            stream.write_all(piece.as_bytes()).unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    });
    assert_eq!(in_pieces, "{\"groups\":[]}\n");
    let endless = served(&mut server, nothing, || exchange(&path, &[b' '; REQUEST_BYTES_MAX]));
    assert!(endless.contains("a request is"), "{endless}");
}

#[test]
fn an_answer_is_worked_out_once_for_all_who_ask_the_same() {
    let (_dir, path, mut server) = listening();
    let asked = Mutex::new(Vec::new());
    // SAFETY: has no preconditions.
    let me = unsafe { libc::geteuid() };
    let slowly = |uid: u32, request: &Request| {
        asked.lock().unwrap().push((uid, request.clone()));
        thread::sleep(Duration::from_millis(300));
        nothing(uid, request)
    };
    let clients = || {
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| ask(&path, &Request::default()).unwrap());
            }
            // An equal request, written differently.
            scope.spawn(|| exchange(&path, b"  {\"tasks\" : false}\n"));
            scope.spawn(|| exchange(&path, b"{\"group\":\"/a\"}\n"));
        });
    };
    served(&mut server, slowly, clients);
    let mut asked = asked.into_inner().unwrap();
    asked.sort_by_key(|(_, request)| request.group.clone());
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[1], (me, Request { group: Some("/a".to_owned()), tasks: false }));
}
