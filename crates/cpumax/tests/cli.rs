//! Exact output: help, tables and messages. `TRYCMD=overwrite cargo test -p cpumax --test cli`
//! updates the expected output; read the difference before you commit it.

#[test]
fn the_command_says_what_is_written_down() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd").env("NO_COLOR", "1");
}
