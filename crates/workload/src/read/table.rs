//! Fields of the tables of a scenario file: one list that both the reader and the JSON Schema use.
//! A field can only be read in its listed form.

use crate::cpus::CPUS_FORM;
use crate::units::{DURATION_FORM, RATE_FORM};

pub(crate) struct Table {
    /// Name for messages.
    pub what: &'static str,
    pub fields: &'static [Field],
}

impl Table {
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Names of all fields that a table of this kind may have, required or not, in the order of the
    /// list.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.fields.iter().map(|field| field.name)
    }
}

pub(crate) struct Field {
    pub name: &'static str,
    pub form: Form,
    /// Description for the schema.
    pub says: &'static str,
    /// Whether the field is required.
    pub needed: bool,
}

pub(crate) const fn may(name: &'static str, form: Form, says: &'static str) -> Field {
    Field { name, form, says, needed: false }
}

pub(crate) const fn must(name: &'static str, form: Form, says: &'static str) -> Field {
    Field { name, form, says, needed: true }
}

#[derive(Clone, Copy)]
pub(crate) enum Form {
    Text,
    /// The name of a part of this kind, such as `lock`; the path of a group.
    Of(&'static str),
    Flag,
    /// A whole number in this range, both ends included.
    Number(u64, u64),
    /// A number as the kernel's files take it, with or without quotes.
    Digits,
    Nice,
    Float,
    /// A moment, or a length of time.
    Time,
    /// A length of time, or a distribution.
    Length,
    /// A number of events in a time, such as `200/s`.
    Rate,
    Cpus,
    /// `each`, `all`, or a set of CPUs.
    EachOrCpus,
    Choice(fn() -> Vec<&'static str>),
    True,
    Steps,
    Times,
    /// Names of jobs.
    Names,
    /// The shortest and the longest time.
    Bounds,
    /// Times, each with a count up to this.
    Counted(u64),
    Table(&'static Table),
    /// A list of tables of this kind.
    Tables(&'static Table),
}

impl Form {
    /// Description of the form, for messages.
    pub fn accepted(self) -> String {
        match self {
            Form::Text | Form::Of(_) => "a text in quotes".to_owned(),
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
