//! Requests and answers: as much of HTTP/1.1 and of Redis' protocol as is needed to find the end of
//! an answer.

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

/// Longest accepted head of an answer, bytes.
const LONGEST_HEAD: usize = 16 * 1024;
/// End of an answer in chunks.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// HTTP/1.1, answers with a Content-Length or in chunks.
    Http,
    /// Redis, answers that are one line or one string.
    Redis,
}

impl Protocol {
    /// The bytes of one request; `lines` are added to a head of HTTP.
    pub fn request(self, what: &str, lines: &[String]) -> Vec<u8> {
        match self {
            Protocol::Http => {
                let mut text = format!("GET {what} HTTP/1.1\r\nHost: localhost\r\n");
                for line in lines {
                    text.push_str(line);
                    text.push_str("\r\n");
                }
                text.push_str("\r\n");
                text.into_bytes()
            }
            Protocol::Redis => {
                let words: Vec<&str> = what.split_whitespace().collect();
                let mut text = format!("*{}\r\n", words.len());
                for word in words {
                    text.push_str(&["$", &word.len().to_string(), "\r\n", word, "\r\n"].concat());
                }
                text.into_bytes()
            }
        }
    }
}

/// Finds the ends of answers.
pub struct Wire {
    protocol: Protocol,
    /// The head, then the part of the body that may end it.
    kept: Vec<u8>,
    body: Option<Body>,
}

/// How the end of a body is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Left(usize),
    /// An empty chunk ends it.
    Chunks,
}

impl Wire {
    pub fn new(protocol: Protocol) -> Wire {
        Wire { protocol, kept: Vec::new(), body: None }
    }

    /// Takes received bytes; returns whether the answer is complete.
    pub fn take(&mut self, bytes: &[u8]) -> Result<bool> {
        let whole = if let Some(body) = self.body {
            self.take_body(body, bytes)?
        } else {
            self.kept.extend_from_slice(bytes);
            let Some((head, rest)) = self.split_head()? else { return Ok(false) };
            let body = self.body(&head)?;
            self.kept.clear();
            self.take_body(body, &rest)?
        };
        if whole {
            self.kept.clear();
            self.body = None;
        }
        Ok(whole)
    }

    /// The head, and the beginning of the body; `None` while the head is incomplete.
    fn split_head(&self) -> Result<Option<(String, Vec<u8>)>> {
        let end: &[u8] = match self.protocol {
            Protocol::Http => b"\r\n\r\n",
            Protocol::Redis => b"\r\n",
        };
        let Some(at) = self.kept.windows(end.len()).position(|window| window == end) else {
            if self.kept.len() > LONGEST_HEAD {
                bail!("an answer's head of more than {LONGEST_HEAD} bytes");
            }
            return Ok(None);
        };
        let head = String::from_utf8_lossy(&self.kept[..at]).into_owned();
        Ok(Some((head, self.kept[at + end.len()..].to_vec())))
    }

    fn take_body(&mut self, body: Body, bytes: &[u8]) -> Result<bool> {
        match body {
            Body::Left(left) => {
                let left = left.checked_sub(bytes.len()).context("more than one answer at once")?;
                self.body = Some(Body::Left(left));
                Ok(left == 0)
            }
            Body::Chunks => {
                self.body = Some(Body::Chunks);
                self.kept.extend_from_slice(bytes);
                let surplus = self.kept.len().saturating_sub(LAST_CHUNK.len());
                self.kept.drain(..surplus);
                Ok(self.kept == LAST_CHUNK)
            }
        }
    }

    /// How the end of the body is recognized, from the head.
    fn body(&self, head: &str) -> Result<Body> {
        match self.protocol {
            Protocol::Http => {
                let status = head.split_whitespace().nth(1).unwrap_or_default();
                if status != "200" {
                    bail!("`{}`: expected `HTTP/1.1 200 OK`", head.lines().next().unwrap_or(""));
                }
                let field = |name: &str| {
                    head.lines()
                        .filter_map(|line| line.split_once(':'))
                        .find(|(key, _)| key.eq_ignore_ascii_case(name))
                        .map(|(_, value)| value.trim())
                };
                match (field("content-length"), field("transfer-encoding")) {
                    (Some(length), _) => length.parse().map(Body::Left).with_context(|| {
                        format!("`Content-Length: {length}`: expected a number of bytes")
                    }),
                    (None, Some("chunked")) => Ok(Body::Chunks),
                    _ => bail!("an answer with neither a Content-Length nor chunks"),
                }
            }
            Protocol::Redis => match head.split_at_checked(1) {
                Some(("$", length)) => match length.parse::<i64>() {
                    Ok(-1) => Ok(Body::Left(0)),
                    Ok(length) if length >= 0 => Ok(Body::Left(length as usize + 2)),
                    _ => bail!("`{head}`: expected a string's length"),
                },
                Some((":" | "+", _)) => Ok(Body::Left(0)),
                _ => bail!("`{head}`: expected an answer of one line or one string"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_http_ends_with_its_body() {
        let mut wire = Wire::new(Protocol::Http);
        assert!(!wire.take(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n").unwrap());
        assert!(!wire.take(b"\r\nhe").unwrap());
        assert!(wire.take(b"llo").unwrap());
        assert!(wire.take(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap());
    }

    #[test]
    fn an_answer_in_chunks_ends_with_an_empty_one() {
        let mut wire = Wire::new(Protocol::Http);
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!wire.take(head).unwrap());
        assert!(!wire.take(b"5\r\nhel").unwrap());
        assert!(!wire.take(b"lo\r\n0\r\n").unwrap());
        assert!(wire.take(b"\r\n").unwrap());
        assert!(wire.take(&[&head[..], b"1\r\nx\r\n0\r\n\r\n"].concat()).unwrap());
    }

    #[test]
    fn an_answer_of_redis_is_a_line_or_a_string() {
        let mut wire = Wire::new(Protocol::Redis);
        assert!(wire.take(b":17\r\n").unwrap());
        assert!(!wire.take(b"$5\r\nhel").unwrap());
        assert!(wire.take(b"lo\r\n").unwrap());
        assert!(wire.take(b"$-1\r\n").unwrap());
        assert!(wire.take(b"-ERR no\r\n").is_err());
    }

    #[test]
    fn errors_and_answers_without_an_end_are_refused() {
        let take = |bytes: &[u8]| Wire::new(Protocol::Http).take(bytes);
        assert!(take(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").is_err());
        assert!(take(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(take(&vec![b'x'; LONGEST_HEAD + 1]).is_err());
    }

    #[test]
    fn a_request_is_what_servers_read() {
        let request = Protocol::Http.request("/a", &["Connection: close".to_owned()]);
        assert_eq!(request, b"GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let request = Protocol::Redis.request("GET key", &[]);
        assert_eq!(request, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
    }
}
