//! The script of the page, which tells numbers of figures and opens excerpts, and its data. The
//! page's policy allows no other script.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use std::io::Write;

pub(super) const SCRIPT: &str =
    concat!("'use strict';\n", include_str!("open.js"), include_str!("values.js"));

/// Content security policy: nothing is loaded, and only this script runs.
pub(super) fn policy() -> String {
    let hash = STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'")
}

/// Bytes compressed by gzip, as base64.
pub(super) fn packed(bytes: &[u8]) -> String {
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    // Writing into memory does not fail.
    let done = packed.write_all(bytes).and_then(|()| packed.finish());
    STANDARD.encode(done.unwrap_or_default())
}
