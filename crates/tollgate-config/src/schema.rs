//! The JSON Schema of a file, for editors and for people.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::Value;
use tollgate::{Algorithm, Fallback, Missing};

use crate::settings::{Consistency, Dialect};
use crate::typed::File;

/// The algorithms by name.
pub(crate) const ALGORITHMS: [(&str, Algorithm); 5] = {
    let mut named = [("", Algorithm::FixedWindow); 5];
    let mut index = 0;
    while index < named.len() {
        named[index] = (Algorithm::ALL[index].name(), Algorithm::ALL[index]);
        index += 1;
    }
    named
};

/// What rules do with a subject that lacks an axis, by name.
pub(crate) const MISSING: [(&str, Missing); 3] =
    [("skip", Missing::Skip), ("share", Missing::Share), ("deny", Missing::Deny)];

/// What rules do without the store, by name.
pub(crate) const FALLBACKS: [(&str, Fallback); 3] = [
    (Fallback::Allow.name(), Fallback::Allow),
    (Fallback::Deny.name(), Fallback::Deny),
    (Fallback::Local.name(), Fallback::Local),
];

/// The schema of a file of settings, TOML or YAML.
///
/// ```
/// let schema = tollgate_config::schema();
/// assert!(schema["properties"]["rule"].is_object());
/// ```
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<File>().to_value();
    drop_nulls(&mut schema);
    require(&mut schema);
    schema
}

/// The fields that have to be written; all others may be left out.
const REQUIRED: [(&str, &[&str]); 2] =
    [("Rule", &["name", "quota"]), ("Override", &["rule", "when", "quota"])];

/// Says which fields have to be written. (Fields with a schema of their own are generated as if they
/// had to.)
fn require(schema: &mut Value) {
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("required");
    }
    let Some(tables) = schema["$defs"].as_object_mut() else { return };
    for (name, table) in tables {
        let required = REQUIRED.iter().find(|(known, _)| known == name);
        match (required, table.as_object_mut()) {
            (Some((_, fields)), Some(table)) => {
                table.insert("required".to_owned(), (*fields).into());
            }
            (None, Some(table)) => drop(table.remove("required")),
            _ => {}
        }
    }
}

/// No setting may be null: it is left out instead. (Options are generated as nullable.)
fn drop_nulls(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(kinds)) = fields.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [kind] = &kinds[..] {
                    let kind = kind.clone();
                    fields.insert("type".to_owned(), kind);
                }
            }
            if let Some(Value::Array(any)) = fields.get_mut("anyOf") {
                any.retain(|one| one.get("type").is_none_or(|kind| kind != "null"));
                if let [Value::Object(one)] = &any[..] {
                    let one = one.clone();
                    fields.remove("anyOf");
                    fields.extend(one);
                }
            }
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn names<T>(named: &[(&'static str, T)]) -> Schema {
    let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    json_schema!({ "type": "string", "enum": names })
}

pub(crate) fn dialect(_: &mut SchemaGenerator) -> Schema {
    names(&Dialect::NAMED)
}

pub(crate) fn consistency(_: &mut SchemaGenerator) -> Schema {
    names(&Consistency::NAMED)
}

pub(crate) fn algorithm(_: &mut SchemaGenerator) -> Schema {
    names(&ALGORITHMS)
}

pub(crate) fn missing(_: &mut SchemaGenerator) -> Schema {
    names(&MISSING)
}

pub(crate) fn fallback(_: &mut SchemaGenerator) -> Schema {
    names(&FALLBACKS)
}

pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[0-9_]+ *(ms|s|m|min|h|d)$" })
}

pub(crate) fn quota(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "examples": ["100/min", "5/15m", "10/s burst 50", "10/s; 1000/day"],
    })
}

pub(crate) fn tiers(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": quota(generator),
        "minProperties": 1,
    })
}

pub(crate) fn texts(generator: &mut SchemaGenerator) -> Schema {
    let texts = Vec::<String>::json_schema(generator);
    json_schema!({ "anyOf": [{ "type": "string" }, texts] })
}

pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
}

pub(crate) fn list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": texts(generator) })
}

pub(crate) fn axes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "header": {
                    "type": "string",
                    "description": "The header it is read from; without one callers say it.",
                },
            },
            "additionalProperties": false,
        },
    })
}
