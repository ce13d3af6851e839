//! The fields of one table of a scenario file, each with its type and its place.

use crate::bounds::MAX_CPUS;
use crate::build::Marks;
use crate::error::{Flaw, Kind, Stretch};
use crate::model::CpuSet;
use crate::units::{CPUS_FORM, DURATION_FORM, accepted_names, parse_cpus, parse_duration, quoted};
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) type Read<T> = Result<T, Flaw>;
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

pub(super) struct Fields<'t> {
    table: &'t DeTable<'t>,
    what: &'static str,
    at: Stretch,
    known: &'static [&'static str],
}

impl<'t> Fields<'t> {
    /// The fields of `table`, which a reader calls `what`; refused if there are any but those
    /// known.
    pub fn new(
        table: &'t DeTable<'t>,
        at: Stretch,
        what: &'static str,
        known: &'static [&'static str],
    ) -> Read<Fields<'t>> {
        // The first in the file is reported, not the first in the alphabet.
        let unknown = table.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        if let Some(key) = unknown.min_by_key(|key| key.span().start) {
            let name = key.get_ref().as_ref();
            let accepted = match (what, name) {
                ("[[group]]", "parent") => {
                    "the parent is what stands before the last `/` of the path".to_owned()
                }
                _ => accepted_names(name, known.iter().copied()),
            };
            let problem = format!("{what} has no field {}", quoted(name));
            return Err(Flaw::new(Kind::Field, problem, accepted).at(key.span().into()));
        }
        Ok(Fields { table, what, at, known })
    }

    /// Where the table and its values stand.
    pub fn marks(&self) -> Marks {
        let place = |&name: &&'static str| Some((name, self.value(name)?.span().into()));
        Marks { whole: self.at, fields: self.known.iter().filter_map(place).collect() }
    }

    pub fn value(&self, name: &str) -> Option<&'t Value<'t>> {
        self.table.get(name)
    }

    /// `value`, unless there is none.
    pub fn required<T>(&self, name: &str, value: Option<T>, form: &str) -> Read<T> {
        value.ok_or_else(|| {
            let problem = format!("{} needs a field `{name}`", self.what);
            Flaw::new(Kind::Field, problem, form).at(self.at)
        })
    }

    pub fn text(&self, name: &str) -> Read<Option<&'t str>> {
        self.value(name).map(|value| text(value, name)).transpose()
    }

    /// A text that must be there.
    pub fn name(&self, name: &str) -> Read<String> {
        self.required(name, self.text(name)?.map(str::to_owned), "a text in quotes")
    }

    pub fn flag(&self, name: &str) -> Read<Option<bool>> {
        self.value(name)
            .map(|value| match value.get_ref() {
                DeValue::Boolean(flag) => Ok(*flag),
                _ => Err(wrong_type(value, name, "true or false")),
            })
            .transpose()
    }

    pub fn number(&self, name: &str, range: RangeInclusive<u64>) -> Read<Option<u64>> {
        self.value(name).map(|value| number(value, name, range)).transpose()
    }

    /// A number as the kernel's files take it, or the same in quotes.
    pub fn digits(&self, name: &str) -> Read<Option<String>> {
        self.value(name)
            .map(|value| match value.get_ref() {
                DeValue::String(text) => Ok(text.as_ref().to_owned()),
                _ => number(value, name, 0..=u64::MAX).map(|number| number.to_string()),
            })
            .transpose()
    }

    pub fn nice(&self, name: &str) -> Read<Option<i8>> {
        self.value(name).map(|value| nice(value, name)).transpose()
    }

    pub fn float(&self, name: &str) -> Read<Option<f64>> {
        self.value(name).map(|value| float(value, name)).transpose()
    }

    pub fn time(&self, name: &str) -> Read<Option<u64>> {
        self.value(name).map(|value| read_time(value, name)).transpose()
    }

    pub fn cpus(&self, name: &str) -> Read<Option<CpuSet>> {
        self.value(name).map(|value| cpus(value, name)).transpose()
    }

    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&'static str, T)]) -> Read<Option<T>> {
        self.value(name).map(|value| choice(value, name, choices)).transpose()
    }

    /// A table inside this one.
    pub fn table(
        &self,
        name: &str,
        what: &'static str,
        known: &'static [&'static str],
    ) -> Read<Option<Fields<'t>>> {
        self.value(name)
            .map(|value| match value.get_ref() {
                DeValue::Table(table) => Fields::new(table, value.span().into(), what, known),
                _ => Err(wrong_type(value, name, &format!("a table, {what}"))),
            })
            .transpose()
    }

    /// A list of tables inside this one; none if it is not there.
    pub fn tables(
        &self,
        name: &str,
        what: &'static str,
        known: &'static [&'static str],
    ) -> Read<Vec<Fields<'t>>> {
        let Some(value) = self.value(name) else {
            return Ok(Vec::new());
        };
        let form = format!("tables that begin with {what}");
        let DeValue::Array(items) = value.get_ref() else {
            return Err(wrong_type(value, name, &form));
        };
        let table = |item: &'t Value<'t>| match item.get_ref() {
            DeValue::Table(table) => Fields::new(table, item.span().into(), what, known),
            _ => Err(wrong_type(item, name, &form)),
        };
        items.iter().map(table).collect()
    }
}

pub(super) fn text<'t>(value: &'t Value<'t>, name: &str) -> Read<&'t str> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.as_ref()),
        _ => Err(wrong_type(value, name, "a text in quotes")),
    }
}

pub(super) fn array<'t>(
    value: &'t Value<'t>,
    name: &str,
) -> Read<impl Iterator<Item = &'t Value<'t>> + use<'t>> {
    match value.get_ref() {
        DeValue::Array(items) => Ok(items.iter()),
        _ => Err(wrong_type(value, name, "a list in brackets")),
    }
}

pub(super) fn number(value: &Value<'_>, name: &str, range: RangeInclusive<u64>) -> Read<u64> {
    let form = format!("a whole number from {} to {}", range.start(), range.end());
    let DeValue::Integer(integer) = value.get_ref() else {
        return Err(wrong_type(value, name, &form));
    };
    let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
    number.and_then(|number| u64::try_from(number).ok()).filter(|n| range.contains(n)).ok_or_else(
        || {
            let problem = format!("{name} is {integer}");
            Flaw::new(Kind::Value, problem, form).at(value.span().into())
        },
    )
}

pub(super) fn nice(value: &Value<'_>, name: &str) -> Read<i8> {
    let form = "a whole number from -20 to 19";
    let DeValue::Integer(integer) = value.get_ref() else {
        return Err(wrong_type(value, name, form));
    };
    let number = i8::from_str_radix(integer.as_str(), integer.radix()).ok();
    number.filter(|nice| (-20..=19).contains(nice)).ok_or_else(|| {
        let problem = format!("{name} is {integer}");
        Flaw::new(Kind::Value, problem, form).at(value.span().into())
    })
}

pub(super) fn float(value: &Value<'_>, name: &str) -> Read<f64> {
    let number = match value.get_ref() {
        DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse::<f64>().ok(),
        _ => return Err(wrong_type(value, name, "a number")),
    };
    number.filter(|number| number.is_finite()).ok_or_else(|| {
        let problem = format!("{name} is not a finite number");
        Flaw::new(Kind::Value, problem, "a number").at(value.span().into())
    })
}

pub(super) fn read_time(value: &Value<'_>, name: &str) -> Read<u64> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.as_ref(),
        _ => return Err(wrong_type(value, name, DURATION_FORM)),
    };
    parse_duration(text).ok_or_else(|| {
        let problem = format!("{} is not a length of time", quoted(text));
        Flaw::new(Kind::Value, problem, DURATION_FORM).at(value.span().into())
    })
}

pub(super) fn cpus(value: &Value<'_>, name: &str) -> Read<CpuSet> {
    read_cpus(text(value, name)?, "").map_err(|flaw| flaw.at(value.span().into()))
}

/// `or` is what else would be accepted.
pub(super) fn read_cpus(text: &str, or: &str) -> Read<CpuSet> {
    parse_cpus(text).ok_or_else(|| {
        let problem = format!("{} is not a set of CPUs", quoted(text));
        let accepted = format!("{or}{CPUS_FORM}, each below {MAX_CPUS}");
        Flaw::new(Kind::Value, problem, accepted)
    })
}

pub(super) fn choice<T: Copy>(
    value: &Value<'_>,
    name: &str,
    choices: &[(&'static str, T)],
) -> Read<T> {
    let text = text(value, name)?;
    let chosen = choices.iter().find(|(choice, _)| *choice == text);
    chosen.map(|(_, chosen)| *chosen).ok_or_else(|| {
        let accepted = accepted_names(text, choices.iter().map(|(choice, _)| *choice));
        let problem = format!("{name} is {}", quoted(text));
        Flaw::new(Kind::Value, problem, accepted).at(value.span().into())
    })
}

pub(super) fn wrong_type(value: &Value<'_>, name: &str, form: &str) -> Flaw {
    let what = match value.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    Flaw::new(Kind::Field, format!("`{name}` is {what}"), form).at(value.span().into())
}
