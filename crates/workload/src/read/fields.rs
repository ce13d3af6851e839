//! The fields of one table of a scenario file, with their types and positions.

use super::language::Word;
use super::table::{Form, Table};
use crate::bounds::MAX_CPUS;
use crate::cpus::CpuSet;
use crate::cpus::{CPUS_FORM, parse_cpus};
use crate::error::{ByteRange, Error, Refusal};
use crate::model::Distribution;
use crate::units::{DURATION_FORM, accepted_names, parse_duration, quoted};
use std::fmt::Display;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) type Read<T> = Result<T, Refusal>;
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// CPUs that tasks may use: all, the i-th for the i-th task, or a set.
#[derive(Clone)]
pub(super) enum Cpus {
    All,
    Each,
    Set(CpuSet),
}

/// A length of time: fixed, ns, or drawn anew each time.
#[derive(Clone, PartialEq)]
pub(super) enum Length {
    Fixed(u64),
    Drawn(Distribution),
}

/// A table of the file whose keys are all known.
#[derive(Clone, Copy)]
pub(super) struct Fields<'t> {
    table: &'t DeTable<'t>,
    of: &'static Table,
    at: ByteRange,
}

impl<'t> Fields<'t> {
    /// Wraps a table of kind `of`; refuses fields that this kind lacks.
    pub fn new(table: &'t DeTable<'t>, at: ByteRange, of: &'static Table) -> Read<Fields<'t>> {
        // Reports the first in the file, not the first in the alphabet.
        let unknown = table.keys().filter(|key| of.field(key.get_ref()).is_none());
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            let (what, name) = (of.what, key.get_ref().as_ref());
            let accepted = match (what, name) {
                ("[[group]]", "parent") => {
                    "the parent is what stands before the last `/` of the path".to_owned()
                }
                _ => accepted_names(name, of.names()),
            };
            let problem = format!("{what} has no field {}", quoted(name));
            return Err(Refusal::new(Error::Field, problem, accepted).at(key.span().into()));
        }
        Ok(Fields { table, of, at })
    }

    /// Position of the value of a field, or of the table if it is absent.
    pub fn at(&self, name: &str) -> ByteRange {
        self.value(name).map_or(self.at, |value| value.span().into())
    }

    pub fn value(&self, name: &str) -> Option<&'t Value<'t>> {
        self.table.get(name)
    }

    /// Reads a field, if present, by `read`, which returns `None` where the form is not the one it
    /// reads.
    pub fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(Form, &'t Value<'t>) -> Option<Read<T>>,
    ) -> Read<Option<T>> {
        let (Some(field), Some(value)) = (self.of.field(name), self.value(name)) else {
            return Ok(None);
        };
        let read = read(field.form, value);
        debug_assert!(read.is_some(), "{} lists `{name}` as something else", self.of.what);
        read.unwrap_or_else(|| Err(wrong_type(value, name, &field.form.accepted()))).map(Some)
    }

    /// `value`, or a refusal of the table where it is `None`.
    pub fn required<T>(&self, name: &str, value: Option<T>, form: &str) -> Read<T> {
        debug_assert!(
            self.of.field(name).is_some_and(|field| field.needed),
            "{} lists `{name}` as one that may be left out",
            self.of.what
        );
        value.ok_or_else(|| {
            let problem = format!("{} needs a field `{name}`", self.of.what);
            Refusal::new(Error::Field, problem, form).at(self.at)
        })
    }

    /// The value of a field that is known to be there.
    pub fn present<T>(&self, name: &str, value: Option<T>) -> Read<T> {
        let problem = format!("`{name}` has no value");
        value.ok_or_else(|| Refusal::new(Error::Field, problem, "").at(self.at))
    }

    /// A text in quotes; `None` if absent.
    pub fn text(&self, name: &str) -> Read<Option<&'t str>> {
        self.read(name, |form, value| {
            matches!(form, Form::Text | Form::Of(_) | Form::Rate).then(|| text(value, name))
        })
    }

    /// A required text.
    pub fn name(&self, name: &str) -> Read<&'t str> {
        self.required(name, self.text(name)?, "a text in quotes")
    }

    /// `true` or `false`; `None` if absent.
    pub fn flag(&self, name: &str) -> Read<Option<bool>> {
        self.read(name, |form, value| match (form, value.get_ref()) {
            (Form::Flag, DeValue::Boolean(flag)) => Some(Ok(*flag)),
            (Form::Flag, _) => Some(Err(wrong_type(value, name, "true or false"))),
            _ => None,
        })
    }

    /// A whole number in the range that the field's form allows; `None` if absent.
    pub fn number(&self, name: &str) -> Read<Option<u64>> {
        self.read(name, |form, value| match form {
            Form::Number(low, high) => Some(number(value, name, low..=high)),
            _ => None,
        })
    }

    /// A number as the kernel's files take it, with or without quotes.
    pub fn digits(&self, name: &str) -> Read<Option<String>> {
        self.read(name, |form, value| match (form, value.get_ref()) {
            (Form::Digits, DeValue::String(text)) => Some(Ok(text.as_ref().to_owned())),
            (Form::Digits, _) => Some(number(value, name, 0..=u64::MAX).map(|n| n.to_string())),
            _ => None,
        })
    }

    /// A nice value; `None` if absent.
    pub fn nice(&self, name: &str) -> Read<Option<i8>> {
        self.read(name, |form, value| {
            matches!(form, Form::Nice).then(|| number(value, name, -20..=19))
        })
    }

    /// A finite number; `None` if absent.
    pub fn float(&self, name: &str) -> Read<Option<f64>> {
        self.read(name, |form, value| matches!(form, Form::Float).then(|| float(value, name)))
    }

    /// A length of time, ns; `None` if absent.
    pub fn time(&self, name: &str) -> Read<Option<u64>> {
        self.read(name, |form, value| matches!(form, Form::Time).then(|| read_time(value, name)))
    }

    /// A set of CPUs; `None` if absent.
    pub fn cpus(&self, name: &str) -> Read<Option<CpuSet>> {
        self.read(name, |form, value| matches!(form, Form::Cpus).then(|| cpus(value, name)))
    }

    /// `each`, `all` (the default), or a set of CPUs.
    pub fn each_or_cpus(&self, name: &str) -> Read<Cpus> {
        let cpus = self.read(name, |form, value| {
            let read = || match text(value, name)? {
                "all" => Ok(Cpus::All),
                "each" => Ok(Cpus::Each),
                set => {
                    let set = read_cpus(set, "\"each\", \"all\", or ");
                    set.map(Cpus::Set).map_err(|refusal| refusal.at(value.span().into()))
                }
            };
            matches!(form, Form::EachOrCpus).then(read)
        })?;
        Ok(cpus.unwrap_or(Cpus::All))
    }

    /// One of the words of a type; `None` if absent.
    pub fn choice<W: Word>(&self, name: &str) -> Read<Option<W>> {
        self.read(name, |form, value| matches!(form, Form::Choice(_)).then(|| word(value, name)))
    }

    /// A list of lengths of time, ns; `None` if absent.
    pub fn times(&self, name: &str) -> Read<Option<Vec<u64>>> {
        self.list(name, Form::Times, read_time)
    }

    /// A list of texts; `None` if absent.
    pub fn names(&self, name: &str) -> Read<Option<Vec<&'t str>>> {
        self.list(name, Form::Names, text)
    }

    /// The list in this field, each item read by `read`; `None` if the field is absent.
    fn list<T>(
        &self,
        name: &str,
        of: Form,
        read: impl Fn(&'t Value<'t>, &str) -> Read<T>,
    ) -> Read<Option<Vec<T>>> {
        let all = |value| array(value, name)?.map(|item| read(item, name)).collect();
        self.read(name, |form, value| {
            (std::mem::discriminant(&form) == std::mem::discriminant(&of)).then(|| all(value))
        })
    }

    /// A table inside this one; `None` if it is absent. Refuses a value that is no table, and a
    /// table with a field that its kind does not have.
    pub fn table(&self, name: &str) -> Read<Option<Fields<'t>>> {
        self.read(name, |form, value| match (form, value.get_ref()) {
            (Form::Table(of), DeValue::Table(table)) => {
                Some(Fields::new(table, value.span().into(), of))
            }
            (Form::Table(_), _) => Some(Err(wrong_type(value, name, &form.accepted()))),
            _ => None,
        })
    }

    /// A list of tables inside this one; empty if absent.
    pub fn tables(&self, name: &str) -> Read<Vec<Fields<'t>>> {
        let tables = self.read(name, |form, value| {
            let Form::Tables(of) = form else { return None };
            let wrong = |value| wrong_type(value, name, &form.accepted());
            let DeValue::Array(items) = value.get_ref() else { return Some(Err(wrong(value))) };
            let table = |item: &'t Value<'t>| match item.get_ref() {
                DeValue::Table(table) => Fields::new(table, item.span().into(), of),
                _ => Err(wrong(item)),
            };
            Some(items.iter().map(table).collect::<Read<Vec<_>>>())
        })?;
        Ok(tables.unwrap_or_default())
    }
}

pub(super) fn text<'t>(value: &'t Value<'t>, name: &str) -> Read<&'t str> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.as_ref()),
        _ => Err(wrong_type(value, name, "a text in quotes")),
    }
}

/// The items of a list; `name` is for the message.
pub(super) fn array<'t>(
    value: &'t Value<'t>,
    name: &str,
) -> Read<impl Iterator<Item = &'t Value<'t>> + use<'t>> {
    match value.get_ref() {
        DeValue::Array(items) => Ok(items.iter()),
        _ => Err(wrong_type(value, name, "a list in brackets")),
    }
}

/// Reads a whole number in `range`; `name` is for the message.
pub(super) fn number<N>(value: &Value<'_>, name: &str, range: RangeInclusive<N>) -> Read<N>
where
    N: Copy + Display + PartialOrd + TryFrom<i128>,
{
    let form = format!("a whole number from {} to {}", range.start(), range.end());
    let DeValue::Integer(integer) = value.get_ref() else {
        return Err(wrong_type(value, name, &form));
    };
    let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
    let number = number.and_then(|number| N::try_from(number).ok());
    number.filter(|number| range.contains(number)).ok_or_else(|| {
        let problem = format!("{name} is {integer}");
        Refusal::new(Error::Value, problem, form).at(value.span().into())
    })
}

/// Reads a finite number, with or without a point; `name` is for the message.
pub(super) fn float(value: &Value<'_>, name: &str) -> Read<f64> {
    let number = match value.get_ref() {
        DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse::<f64>().ok(),
        _ => return Err(wrong_type(value, name, "a number")),
    };
    number.filter(|number| number.is_finite()).ok_or_else(|| {
        let problem = format!("{name} is not a finite number");
        Refusal::new(Error::Value, problem, "a number").at(value.span().into())
    })
}

/// Reads a length of time, ns; `name` is for the message.
pub(super) fn read_time(value: &Value<'_>, name: &str) -> Read<u64> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.as_ref(),
        _ => return Err(wrong_type(value, name, DURATION_FORM)),
    };
    parse_duration(text).ok_or_else(|| {
        let problem = format!("{} is not a length of time", quoted(text));
        Refusal::new(Error::Value, problem, DURATION_FORM).at(value.span().into())
    })
}

pub(super) fn cpus(value: &Value<'_>, name: &str) -> Read<CpuSet> {
    read_cpus(text(value, name)?, "").map_err(|refusal| refusal.at(value.span().into()))
}

/// Reads a set of CPUs. `or` begins the text of what would be accepted.
pub(super) fn read_cpus(text: &str, or: &str) -> Read<CpuSet> {
    parse_cpus(text).ok_or_else(|| {
        let problem = format!("{} is not a set of CPUs", quoted(text));
        let accepted = format!("{or}{CPUS_FORM}, each below {MAX_CPUS}");
        Refusal::new(Error::Value, problem, accepted)
    })
}

/// Reads one of the words of a type; the refusal suggests the accepted ones.
fn word<W: Word>(value: &Value<'_>, name: &str) -> Read<W> {
    let text = text(value, name)?;
    let chosen = W::WORDS.iter().find(|(word, _)| *word == text);
    chosen.map(|(_, chosen)| *chosen).ok_or_else(|| {
        let accepted = accepted_names(text, W::WORDS.iter().map(|(word, _)| *word));
        let problem = format!("{name} is {}", quoted(text));
        Refusal::new(Error::Value, problem, accepted).at(value.span().into())
    })
}

/// The refusal of a value of the wrong type; `form` says what would be accepted.
pub(super) fn wrong_type(value: &Value<'_>, name: &str, form: &str) -> Refusal {
    let what = match value.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    Refusal::new(Error::Field, format!("`{name}` is {what}"), form).at(value.span().into())
}
