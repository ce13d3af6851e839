//! JSON documents of answers: each has its kind and version.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Version of documents. It is raised where a reader of the previous version would be misled.
pub const VERSION: u32 = 2;

/// An answer that is written as a JSON document.
pub trait Answer {
    /// The `kind` of its documents.
    const KIND: &'static str;
}

impl<T: Answer> Answer for &T {
    const KIND: &'static str = T::KIND;
}

/// An answer with its kind and version, as it is written.
///
/// ```
/// use cpumax_study::{Model, Study, scenario, world};
///
/// let jobs = Study::new(scenario::load("nested")?).jobs();
/// let reports = world::all(&Model::default(), &jobs, &())?;
/// let json = serde_json::to_value(reports[0].document())?;
/// assert_eq!((&json["kind"], &json["version"]), (&"run".into(), &2.into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Serialize)]
pub struct Document<T> {
    kind: &'static str,
    version: u32,
    #[serde(flatten)]
    answer: T,
}

impl<T: Answer> From<T> for Document<T> {
    fn from(answer: T) -> Document<T> {
        Document { kind: T::KIND, version: VERSION, answer }
    }
}

impl<T: Answer + JsonSchema> JsonSchema for Document<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        let object = schema.ensure_object();
        for (name, value) in [("version", json!(VERSION)), ("kind", json!(T::KIND))] {
            object["properties"][name] = json!({ "const": value });
            if let Some(Value::Array(required)) = object.get_mut("required") {
                required.insert(0, json!(name));
            }
        }
        schema
    }
}

/// The kind of a document.
///
/// # Errors
/// A sentence, if it has none or is of another version.
pub fn kind(document: &Value) -> Result<&str, String> {
    let Some(kind) = document.get("kind").and_then(Value::as_str) else {
        return Err("it has no `kind`, as every answer of cpumax has".to_owned());
    };
    match document.get("version") {
        Some(version) if *version == VERSION => Ok(kind),
        version => {
            let version = version.map_or("no version".to_owned(), |v| format!("version {v}"));
            Err(format!("it has {version}, but only version {VERSION} can be read: make it again"))
        }
    }
}

/// Reads an answer from a document, whatever its kind.
///
/// # Errors
/// The message of serde.
pub fn read<T: DeserializeOwned>(document: Value) -> Result<T, String> {
    serde_json::from_value(document).map_err(|error| error.to_string())
}
