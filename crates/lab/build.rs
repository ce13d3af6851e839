//! Compiles the library that gives an emulated machine its time (`preload/turns.c`); the lab
//! contains it.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "preload/turns.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CC");
    let library = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("turns.so");
    // Elsewhere no virtual machine is started, and no library is loaded.
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|architecture| architecture != "x86_64") {
        std::fs::write(library, []).expect("OUT_DIR can be written");
        return;
    }
    assert!(
        env::var("CC").is_ok() || env::var("HOST").is_ok_and(|host| host.starts_with("x86_64")),
        "{SOURCE} runs on x86_64: $CC names a compiler for it"
    );
    // QEMU is linked with this machine's C library, whatever this program is linked with. `$CC` may
    // have several words.
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words).args([
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        "-Werror=implicit-function-declaration",
        "-fPIC",
        "-shared",
        "-pthread",
        "-Wl,-z,now",
        "-s",
        "-o",
    ]);
    let failed = match command.arg(library).arg(SOURCE).status() {
        Ok(status) if status.success() => return,
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    panic!(
        "{compiler} does not compile {SOURCE} ({failed}): a C compiler with libc's headers is \
         needed; $CC names one"
    );
}
