//! The JSON Schema in `docs/` is the one the code makes, and says what the reader reads.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use tollgate_config::{Format, Loader, Source, schema};

#[test]
fn the_schema_in_the_repository_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tollgate.schema.json");
    let made = format!("{:#}\n", schema());
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(made == kept, "run: tollgate config schema > docs/tollgate.schema.json");
}

/// The fields the reader knows in a table, as it tells whoever writes another.
fn known(text: &str) -> BTreeSet<String> {
    let source = Source::new("a.toml", text);
    let report = Loader::new().load_text(source, Format::Toml).unwrap_err();
    let help = report.findings().find(|found| found.message.contains("\"zzzzzz\"")).unwrap().help;
    let (_, fields) = help.unwrap().split_once("the fields are ").unwrap();
    fields.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_schema_has_the_fields_the_reader_reads() {
    let schema = schema();
    let properties = |table: &Value| -> BTreeSet<String> {
        table["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let part = |name: &str| properties(&schema["$defs"][name]);
    assert_eq!(known("zzzzzz = 1"), properties(&schema));
    for (text, name) in [
        ("[store]\nzzzzzz = 1", "Store"),
        ("[listen]\nzzzzzz = 1", "Listen"),
        ("[admin]\nzzzzzz = 1", "Admin"),
        ("[audit]\nzzzzzz = 1", "Audit"),
        ("[metrics]\nzzzzzz = 1", "Metrics"),
        ("[[rule]]\nzzzzzz = 1", "Rule"),
        ("[[override]]\nzzzzzz = 1", "Override"),
    ] {
        assert_eq!(known(text), part(name), "{name}");
        assert_eq!(schema["$defs"][name]["additionalProperties"], false, "{name}");
    }
    let rule = &schema["$defs"]["Rule"];
    assert_eq!(rule["required"], serde_json::json!(["name", "quota"]));
    assert!(rule["properties"]["algorithm"]["description"].is_string());
}
