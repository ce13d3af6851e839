//! Scenarios made in Rust: the tables, keys and values of scenario files
//! (docs/reference/scenarios.md), read and checked as a file is.

use crate::checked::Workload;
use crate::cpus::CpuSet;
use crate::cpus::print_cpus;
use crate::dist::counts;
use crate::error::Error;
use crate::model::Distribution;
use crate::read::language::Word;
use crate::units::print_duration;
use std::fmt;
use std::time::Duration;

/// A value of a scenario; printed as TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// TOML of a text, a number or a flag.
    Plain(String),
    /// A list, such as a program.
    List(Vec<Value>),
    /// A table inside of another, such as an instruction or a distribution.
    Table(Table),
}

/// A table of a scenario: a part, such as a kind of task, or an instruction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    pub(crate) fields: Vec<(&'static str, Value)>,
}

/// A table with this key; [`Table::with`] adds others.
///
/// ```
/// use cpumax_workload::build::table;
/// use std::time::Duration;
///
/// let work = table("user", Duration::from_millis(1));
/// let hog = table("name", "hog").with("count", 2).with("program", [table("forever", [work])]);
/// assert_eq!(
///     hog.to_string(),
///     r#"{ name = "hog", count = 2, program = [{ forever = [{ user = "1ms" }] }] }"#
/// );
/// ```
pub fn table(key: &'static str, value: impl Into<Value>) -> Table {
    Table::default().with(key, value)
}

impl Table {
    /// Adds a key with its value.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Table {
        self.fields.push((key, value.into()));
        self
    }

    /// Adds a key if there is a value.
    #[must_use]
    pub fn with_some(self, key: &'static str, value: Option<impl Into<Value>>) -> Table {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Adds a key unless its value is the default.
    #[expect(clippy::needless_pass_by_value, reason = "most defaults are numbers")]
    pub(crate) fn unless<T: PartialEq + Into<Value>>(
        self,
        key: &'static str,
        value: T,
        default: T,
    ) -> Table {
        self.with_some(key, (value != default).then_some(value))
    }
}

/// A scenario under construction. Parts refer to each other by name and may come in any order.
///
/// ```
/// use cpumax_workload::{LockKind, Workload, build::table};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let under_lock = [
///     table("lock", "inode").with("mode", "write"),
///     table("kernel", ms(5)),
///     table("unlock", "inode"),
/// ];
/// let program = [table("forever", [table("user", ms(1)), table("syscall", under_lock)])];
/// let workload = Workload::builder("lock-holder")
///     .with("duration", ms(10_000))
///     .with("machine", table("cpus", 2))
///     .part("group", table("path", "/limited").with("max", "20000 100000"))
///     .part("lock", table("name", "inode").with("kind", LockKind::Rwsem))
///     .part("task", table("name", "writer").with("group", "/limited").with("program", program))
///     .build()?;
/// assert_eq!(workload.groups[1].path, "/limited");
/// # Ok::<(), cpumax_workload::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    pub(crate) top: Table,
    pub(crate) parts: Vec<(&'static str, Table)>,
}

impl Workload {
    /// A builder of a scenario of this name: one CPU, no tasks, ten seconds.
    pub fn builder(name: &str) -> Builder {
        Builder { top: table("name", name), parts: Vec::new() }
    }
}

impl Builder {
    /// Adds a key at the top, such as `duration` or `machine`.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Builder {
        self.top = self.top.with(key, value);
        self
    }

    /// Adds a part of this kind: `task` adds a `[[task]]`.
    #[must_use]
    pub fn part(mut self, kind: &'static str, table: Table) -> Builder {
        self.parts.push((kind, table));
        self
    }

    /// Adds a part of this kind for each item.
    pub(crate) fn parts<T>(
        mut self,
        kind: &'static str,
        items: &[T],
        table: impl Fn(&T) -> Table,
    ) -> Builder {
        self.parts.extend(items.iter().map(|item| (kind, table(item))));
        self
    }

    /// Reads and checks the scenario.
    ///
    /// # Errors
    /// The first problem, with its part and what would be accepted.
    pub fn build(&self) -> Result<Workload, Error> {
        crate::read::read_text(&self.to_string(), "", None)
    }
}

impl fmt::Display for Builder {
    /// Prints the scenario as a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.top.fields {
            writeln!(f, "{key} = {value}")?;
        }
        for (kind, table) in &self.parts {
            match *kind {
                "machine" => writeln!(f, "\n[machine]")?,
                _ => writeln!(f, "\n[[{kind}]]")?,
            }
            for (key, value) in &table.fields {
                match value {
                    Value::List(steps) if *key == "program" => {
                        writeln!(f, "program = [")?;
                        print_steps(f, steps, 2)?;
                        writeln!(f, "]")?;
                    }
                    _ => writeln!(f, "{key} = {value}")?,
                }
            }
        }
        Ok(())
    }
}

/// Prints each instruction on a line, indented by `width` and its nesting.
fn print_steps(f: &mut fmt::Formatter<'_>, steps: &[Value], width: usize) -> fmt::Result {
    for step in steps {
        if let Value::Table(Table { fields }) = step
            && let Some(((last, Value::List(body)), head)) = fields.split_last()
        {
            write!(f, "{:width$}{{ ", "")?;
            for (key, value) in head {
                write!(f, "{key} = {value}, ")?;
            }
            writeln!(f, "{last} = [")?;
            print_steps(f, body, width + 2)?;
            writeln!(f, "{:width$}] }},", "")?;
        } else {
            writeln!(f, "{:width$}{step},", "")?;
        }
    }
    Ok(())
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Plain(text) => f.write_str(text),
            Value::Table(table) => table.fmt(f),
            Value::List(values) => {
                f.write_str("[")?;
                for (ix, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if ix == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (ix, (key, value)) in self.fields.iter().enumerate() {
            write!(f, "{} {key} = {value}", if ix == 0 { "{" } else { "," })?;
        }
        f.write_str(" }")
    }
}

macro_rules! plain {
    ($($from:ty),* => $print:expr) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Value {
                let print: fn($from) -> String = $print;
                Value::Plain(print(value))
            }
        })*
    };
}

plain!(u16, u32, u64, i8, i32, bool => |value| value.to_string());
plain!(f64 => |value| format!("{value:?}"));
plain!(&str => quote);
plain!(&String => |text| quote(text));
plain!(String => |text| quote(&text));
plain!(CpuSet => |cpus| quote(&print_cpus(&cpus)));
// A time that does not fit into 64 bits is refused as too long.
plain!(Duration => |time| {
    quote(&print_duration(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
});

impl<W: Word> From<W> for Value {
    fn from(value: W) -> Value {
        value.word().into()
    }
}

impl From<Table> for Value {
    fn from(table: Table) -> Value {
        Value::Table(table)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Value {
        Value::List(values.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(values: [T; N]) -> Value {
        Vec::from(values).into()
    }
}

impl From<&Distribution> for Value {
    fn from(distribution: &Distribution) -> Value {
        let time = Duration::from_nanos;
        let drawn = match distribution {
            Distribution::Constant { ns } => return time(*ns).into(),
            Distribution::Uniform { low_ns, high_ns } => {
                table("uniform", [time(*low_ns), time(*high_ns)])
            }
            Distribution::Exponential { mean_ns } => table("exponential", time(*mean_ns)),
            Distribution::LogNormal { median_ns, sigma } => {
                table("lognormal", table("median", time(*median_ns)).with("sigma", *sigma))
            }
            Distribution::Empirical { values_ns, cumulative } => {
                let pair = |(ns, count)| Value::List(vec![time(ns).into(), Value::from(count)]);
                table(
                    "empirical",
                    values_ns.iter().copied().zip(counts(cumulative)).map(pair).collect::<Vec<_>>(),
                )
            }
        };
        drawn.into()
    }
}

impl From<Distribution> for Value {
    fn from(distribution: Distribution) -> Value {
        (&distribution).into()
    }
}

/// A TOML string with this text.
pub(crate) fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}
