//! JSON Schema of scenario files, for editors, made from the tables that the reader uses.

use crate::read::language::{DISTRIBUTION, SCENARIO, VERBS};
use crate::read::table::{Form, Table};
use serde_json::{Map, Value, json};

const TIME: &str = r"^\s*[0-9_]*[0-9][0-9_]*(\.[0-9_]*[0-9][0-9_]*)?\s*(ns|us|µs|ms|s|min|h)\s*$";
const RATE: &str = r"^\s*[0-9._]+\s*/\s*(ns|us|µs|ms|s|min|h)\s*$";
const CPUS: &str = r"\s*[0-9]+\s*(-\s*[0-9]+\s*)?(,\s*[0-9]+\s*(-\s*[0-9]+\s*)?)*";
const DIGITS: &str = r"^\s*[+-]?[0-9]";

/// JSON Schema (draft 2020-12) of scenario files, read as JSON: the fields of each table, and their
/// values. Only the reader refuses names of parts that do not exist, fields that exclude each
/// other, and limits that the kernel would refuse.
pub fn schema() -> Value {
    let mut schema = object(&SCENARIO);
    let root = [
        ("$schema", json!("https://json-schema.org/draft/2020-12/schema")),
        ("title", json!("Scenario")),
        (
            "description",
            json!("An experiment with CPU limits: docs/reference/scenarios.md of cpumax."),
        ),
        ("$defs", json!({ "length": length(), "program": program() })),
    ];
    if let Value::Object(schema) = &mut schema {
        schema.extend(root.map(|(name, value)| (name.to_owned(), value)));
    }
    schema
}

/// Schema of a table that has these fields and no others.
fn object(table: &Table) -> Value {
    let properties: Map<String, Value> = table
        .fields
        .iter()
        .map(|field| {
            let mut schema = of(field.form);
            schema["description"] = json!(field.says);
            (field.name.to_owned(), schema)
        })
        .collect();
    let needed = table.fields.iter().filter(|field| field.needed).map(|field| field.name);
    let needed: Vec<&str> = needed.collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": needed,
        "additionalProperties": false,
    })
}

/// Schema of a field's value.
fn of(form: Form) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    match form {
        Form::Text | Form::Of(_) => json!({ "type": "string" }),
        Form::Flag => json!({ "type": "boolean" }),
        Form::Number(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Form::Digits => {
            json!({ "type": ["integer", "string"], "minimum": 0, "pattern": DIGITS })
        }
        Form::Nice => json!({ "type": "integer", "minimum": -20, "maximum": 19 }),
        Form::Float => json!({ "type": "number" }),
        Form::Time => text(TIME),
        Form::Length => json!({ "$ref": "#/$defs/length" }),
        Form::Rate => text(RATE),
        Form::Cpus => text(&format!("^{CPUS}$")),
        Form::EachOrCpus => text(&format!("^(each|all|{CPUS})$")),
        Form::Choice(words) => json!({ "enum": words() }),
        Form::True => json!({ "const": true }),
        Form::Steps => json!({ "$ref": "#/$defs/program" }),
        Form::Times => json!({ "type": "array", "items": text(TIME) }),
        Form::Names => json!({ "type": "array", "items": { "type": "string" } }),
        Form::Bounds => {
            json!({ "type": "array", "items": text(TIME), "minItems": 2, "maxItems": 2 })
        }
        Form::Counted(most) => {
            let count = json!({ "type": "integer", "minimum": 1, "maximum": most });
            let pair = json!({
                "type": "array", "prefixItems": [text(TIME), count], "minItems": 2, "maxItems": 2,
            });
            json!({ "type": "array", "items": pair })
        }
        Form::Table(table) => object(table),
        Form::Tables(table) => json!({ "type": "array", "items": object(table) }),
    }
}

/// A time, or exactly one distribution.
fn length() -> Value {
    let mut one = object(&DISTRIBUTION);
    one["minProperties"] = json!(1);
    one["maxProperties"] = json!(1);
    json!({ "anyOf": [of(Form::Time), one] })
}

/// Instructions of any kind; verbs that share their fields appear once.
fn program() -> Value {
    let mut kinds: Vec<&Table> = Vec::new();
    for (_, table) in &VERBS {
        if !kinds.iter().any(|kind| std::ptr::eq(kind.fields, table.fields)) {
            kinds.push(table);
        }
    }
    let kinds: Vec<Value> = kinds.into_iter().map(object).collect();
    json!({ "type": "array", "items": { "anyOf": kinds } })
}
