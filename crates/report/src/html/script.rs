//! The only program of the page, which does nothing until a button is pressed, and what it is
//! handed. The page's policy lets no other run.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use std::io::Write;

/// It.
pub(super) const SCRIPT: &str = include_str!("open.js");

/// Nothing is loaded, and nothing else runs.
pub(super) fn policy() -> String {
    let hash = STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'")
}

/// Compressed, as text.
pub(super) fn packed(bytes: &[u8]) -> String {
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    // Writing into memory does not fail.
    let done = packed.write_all(bytes).and_then(|()| packed.finish());
    STANDARD.encode(done.unwrap_or_default())
}
