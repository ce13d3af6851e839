//! Makes the library that gives an emulated machine a clock of its own (`preload/clock.c`), which the lab brings along.

use std::env;
use std::path::PathBuf;

const SOURCE: &str = "preload/clock.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let library = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("clock.so");
    let mut compiler =
        cc::Build::new().opt_level(2).pic(true).warnings(true).get_compiler().to_command();
    let compiled =
        compiler.args(["-shared", "-Wl,-z,now", "-s", "-o"]).arg(library).arg(SOURCE).status();
    match compiled {
        Ok(status) if status.success() => {}
        ended => panic!("{compiler:?} does not make a library of {SOURCE}: {ended:?}"),
    }
}
