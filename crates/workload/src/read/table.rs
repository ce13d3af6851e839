//! What a table of a scenario file may hold: one list of fields that the reader and the JSON Schema
//! both go by. A field is read as what it is listed as, or not at all.

use crate::units::{CPUS_FORM, DURATION_FORM, RATE_FORM};

/// A kind of table, and its fields.
pub(crate) struct Table {
    /// As messages call it.
    pub what: &'static str,
    pub fields: &'static [Field],
}

impl Table {
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.fields.iter().map(|field| field.name)
    }
}

/// One field.
pub(crate) struct Field {
    pub name: &'static str,
    pub form: Form,
    /// What it is, for people.
    pub says: &'static str,
    /// It must be there.
    pub needed: bool,
}

/// A field that may be left out.
pub(crate) const fn may(name: &'static str, form: Form, says: &'static str) -> Field {
    Field { name, form, says, needed: false }
}

/// A field that must be there.
pub(crate) const fn must(name: &'static str, form: Form, says: &'static str) -> Field {
    Field { name, form, says, needed: true }
}

/// What a field takes.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Text,
    Flag,
    /// A whole number within this range, both ends included.
    Number(u64, u64),
    /// A number as the kernel's files take it, or the same in quotes.
    Digits,
    Nice,
    Float,
    /// A moment, or a length of time.
    Time,
    /// A length of time, or a distribution.
    Length,
    /// How many in a time.
    Rate,
    Cpus,
    /// `each`, `all`, or a set of CPUs.
    EachOrCpus,
    /// One of these words.
    Choice(fn() -> Vec<&'static str>),
    /// `true`, and nothing else.
    True,
    /// A program.
    Steps,
    Times,
    Names,
    /// The shortest and the longest time.
    Bounds,
    /// Times, each with a count up to this.
    Counted(u64),
    Table(&'static Table),
    /// A list of such tables.
    Tables(&'static Table),
}

impl Form {
    /// What it looks like, for messages.
    pub fn accepted(self) -> String {
        match self {
            Form::Text => "a text in quotes".to_owned(),
            Form::Flag => "true or false".to_owned(),
            Form::Number(low, high) => format!("a whole number from {low} to {high}"),
            Form::Digits => format!("a whole number from 0 to {}", u64::MAX),
            Form::Nice => "a whole number from -20 to 19".to_owned(),
            Form::Float => "a number".to_owned(),
            Form::Time => DURATION_FORM.to_owned(),
            Form::Length => format!("{DURATION_FORM}, or a distribution"),
            Form::Rate => RATE_FORM.to_owned(),
            Form::Cpus => CPUS_FORM.to_owned(),
            Form::EachOrCpus => format!("\"each\", \"all\", or {CPUS_FORM}"),
            Form::Choice(words) => words().join(", "),
            Form::True => "true".to_owned(),
            Form::Steps | Form::Times | Form::Names | Form::Bounds | Form::Counted(_) => {
                "a list in brackets".to_owned()
            }
            Form::Table(table) => format!("a table, {}", table.what),
            Form::Tables(table) => format!("tables that begin with {}", table.what),
        }
    }
}

/// The words that stand for choices.
pub(crate) fn words<T>(choices: &[(&'static str, T)]) -> Vec<&'static str> {
    choices.iter().map(|(word, _)| *word).collect()
}
