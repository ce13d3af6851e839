//! A field of a scenario's `[machine]`, changed by name.

use crate::build::quote;
use crate::checked::Workload;
use crate::error::Error;
use crate::print::print;
use crate::read::parse;

impl Workload {
    /// Copies the workload with another value of one field of `[machine]`, such as `timer_phase`
    /// and `98ms`, or `hz` and `1000`. Text needs no quotes.
    ///
    /// ```
    /// let text = "[[task]]\nname = \"hog\"\nprogram = [{ user = \"1s\" }]\n";
    /// let workload = cpumax_workload::parse(text, "hog.toml")?;
    /// let changed = workload.with_machine("timer_phase", "98ms")?.with_machine("hz", "1000")?;
    /// assert_eq!(changed.machine.timer_phase_ns, Some(98_000_000));
    /// assert_eq!(changed.machine.hz, 1000);
    /// let told = changed.with_machine("timer_fase", "1ms").unwrap_err().to_string();
    /// assert!(told.contains("timer_phase"), "{told}");
    /// # Ok::<(), cpumax_workload::Error>(())
    /// ```
    ///
    /// # Errors
    /// An unknown field, or a value that it does not take.
    pub fn with_machine(&self, field: &str, value: &str) -> Result<Workload, Error> {
        const HEADER: &str = "\n[machine]\n";
        // `shows` may hold any text, even the header.
        let text = print(&self.clone().with_name(&self.name, "")?);
        let (before, rest) = text.split_once(HEADER).unwrap_or((&text, ""));
        let (fields, after) = rest.split_at(rest.find("\n[").unwrap_or(rest.len()));
        let is_other = |line: &&str| line.split(" = ").next() != Some(field);
        let mut fields: Vec<&str> = fields.lines().filter(is_other).collect();
        let is_literal = value.parse::<bool>().is_ok() || value.parse::<i64>().is_ok();
        let value = if is_literal { value.to_owned() } else { quote(value) };
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let name = if field.chars().all(is_bare) { field.to_owned() } else { quote(field) };
        let line = format!("{name} = {value}");
        fields.push(&line);
        let text = format!("{before}{HEADER}{}\n{after}", fields.join("\n"));
        parse(&text, &self.name)?.with_name(&self.name, &self.shows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_no_machine_is_refused_and_nothing_else_changes() {
        let text = "shows = \"a\\n[machine]\\nb\"\n[machine]\ncpus = 4\nnohz_full = \"1-3\"\n\
                    [[task]]\nname = \"hog\"\nprogram = [{ user = \"1s\" }]\n";
        let workload = parse(text, "a.toml").unwrap();
        let same = workload.with_machine("cpus", "4").unwrap();
        assert_eq!(same, workload);
        assert_eq!(workload.with_machine("tick_skew", "true").unwrap().machine.cpus, 4);
        for (field, value) in [
            ("hz", "251"),
            ("hz", "x"),
            ("timer_phase", "-1ms"),
            ("", "1"),
            ("cpus]\n[[group", "1"),
            ("cpus", "1\nhz = 100"),
            ("softirq", "1"),
        ] {
            assert!(workload.with_machine(field, value).is_err(), "{field}={value}");
        }
    }
}
