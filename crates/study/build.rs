//! Embeds every file of `scenarios/` as a built-in scenario.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let folder = Path::new(&manifest).join("../../scenarios");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<_> = match fs::read_dir(&folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut table = String::from("&[\n");
    for path in &files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let path = path.to_string_lossy();
        let _ = writeln!(table, "    BuiltIn {{ name: {name:?}, text: include_str!({path:?}) }},");
    }
    table.push(']');
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("scenarios.rs"), table)
}
