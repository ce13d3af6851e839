//! The form of a limit in documents: the contents of its files.

use crate::{BURST_SINCE, File, Limit, LimitError, Missing, NS_PER_US};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Written {
    /// Content of `cpu.max`.
    cpu_max: String,
    /// Content of `cpu.max.burst`, us.
    burst_usec: u64,
}

impl From<Limit> for Written {
    /// The contents of its files, in whole us.
    fn from(limit: Limit) -> Written {
        Written { cpu_max: limit.to_string(), burst_usec: limit.burst_ns / NS_PER_US }
    }
}

impl TryFrom<Written> for Limit {
    type Error = LimitError;

    /// The limit of these contents on the newest kernel; an error if it refuses them.
    fn try_from(written: Written) -> Result<Limit, LimitError> {
        let limit = Limit::UNLIMITED.write_cpu_max(&written.cpu_max)?;
        limit.write_cpu_max_burst(&written.burst_usec.to_string())
    }
}

impl Serialize for Missing {
    /// Writes the name of the file only.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.file.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Missing {
    /// Reads the name of a file of a limit, or an error for other names; its first kernel is always
    /// that of the burst.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Missing, D::Error> {
        let name = String::deserialize(deserializer)?;
        let file = File::ALL.into_iter().find(|file| file.name() == name);
        let wrong = || D::Error::custom(format!("no file of a limit is called '{name}'"));
        Ok(Missing { file: file.ok_or_else(wrong)?.name(), since: BURST_SINCE })
    }
}

impl JsonSchema for Missing {
    fn schema_name() -> Cow<'static, str> {
        String::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}
