//! QEMU's monitor: commands and answers in its machine protocol (QMP).

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Sends commands. `vm` reads the answers, with the machine's other output.
#[derive(Debug)]
pub struct Monitor {
    /// The connection.
    pub socket: UnixStream,
}

/// A line from the monitor.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// The answer to a command.
    Done(Value),
    /// A command was refused.
    Refused(String),
    /// An event, e.g. `STOP`.
    Event(String),
    /// The greeting, or an unknown line.
    Other,
}

impl Monitor {
    /// Sends a command; QEMU answers all in order.
    pub fn send(&mut self, command: &str, arguments: &Value) -> io::Result<()> {
        let mut message = json!({ "execute": command });
        if !arguments.is_null() {
            message["arguments"] = arguments.clone();
        }
        writeln!(self.socket, "{message}")
    }

    /// Passes an open file to QEMU, under a name for later commands. QEMU answers as to a command.
    pub fn pass(&mut self, file: &impl AsFd, name: &str) -> io::Result<()> {
        let message = json!({ "execute": "getfd", "arguments": { "fdname": name } });
        let text = format!("{message}\n");
        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
        let parts = [IoSlice::new(text.as_bytes())];
        sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::empty())?;
        Ok(())
    }
}

/// Parses a line from the monitor.
pub fn read(line: &str) -> Said {
    let Ok(message) = serde_json::from_str::<Value>(line) else { return Said::Other };
    if let Some(value) = message.get("return") {
        return Said::Done(value.clone());
    }
    if let Some(text) = message.pointer("/error/desc").and_then(Value::as_str) {
        return Said::Refused(text.to_owned());
    }
    match message.get("event").and_then(Value::as_str) {
        Some(event) => Said::Event(event.to_owned()),
        None => Said::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_line_is_told_apart() {
        assert_eq!(
            read(r#"{"return": {"status": "running"}}"#),
            Said::Done(json!({"status": "running"}))
        );
        let refused = r#"{"error": {"class": "GenericError", "desc": "no"}}"#;
        assert_eq!(read(refused), Said::Refused("no".to_owned()));
        let event = r#"{"timestamp": {"seconds": 1}, "event": "STOP"}"#;
        assert_eq!(read(event), Said::Event("STOP".to_owned()));
        assert_eq!(read(r#"{"QMP": {}}"#), Said::Other);
        assert_eq!(read("rubbish"), Said::Other);
    }
}
