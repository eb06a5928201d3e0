//! No password, token or salt is shown, whatever is wrong with the text it stands in.

use std::time::{Duration, Instant};

use tollgate_config::{Format, Loader, Report, Setting, Source};

fn complaints(loader: &Loader, format: Format, text: &str) -> Report {
    match loader.load_text(Source::new("a file", text), format) {
        Ok(loaded) => loaded.warnings,
        Err(report) => report,
    }
}

/// Everything anybody can get to see of a report.
fn shown(report: &Report) -> String {
    format!("{report}{report:?}{:?}", report.findings().collect::<Vec<_>>())
}

#[track_caller]
fn assert_silent(report: &Report, about: &str) {
    let shown = shown(report);
    assert!(!report.is_empty(), "nothing is wrong with {about}");
    assert!(!shown.contains("hunter"), "{about} gives\n{shown}");
}

/// Addresses nothing is right with, each with its password.
const URLS: [&str; 8] = [
    "unx:///s?password=hunter2",
    "redis+sentinal://h/s?sentinel_password=hunter2",
    "redi://u:hunter2@h",
    "redis:hunter2://10.0.0.1@",
    "gate:hunter2@10.0.0.1",
    "gate:hunter2://10.0.0.1",
    "hunter2",
    "postgres://gate:hunter 2\u{e9}@h",
];

#[test]
fn of_an_address() {
    let flag = |url: &str| Loader::new().flag("--store", Setting::StoreUrl, url);
    let variable = |url: &str| Loader::new().environment([("TOLLGATE_STORE_URL", url)]);
    for url in URLS {
        for loader in [flag(url), variable(url)] {
            assert_silent(&complaints(&loader, Format::Toml, ""), url);
        }
        for text in [
            format!("store.url = \"{url}\""),
            format!("[store]\nurl = \"{url}\""),
            format!("store = {{ url = \"{url}\", deadline = \"1h\" }}"),
        ] {
            assert_silent(&complaints(&Loader::new(), Format::Toml, &text), &text);
        }
        for text in [
            format!("store:\n  url: \"{url}\""),
            format!("store:\n  url: {url}"),
            format!("store: {{url: '{url}', deadline: 1h}}"),
            format!("x: &a \"{url}\"\nstore: {{url: *a}}"),
        ] {
            assert_silent(&complaints(&Loader::new(), Format::Yaml, &text), &text);
        }
    }
}

#[test]
fn in_toml() {
    for text in [
        // No TOML.
        "[store]\nurl = \"redis://gate:hunter2@10.0.0.1",
        "[store]\nurl = redis://gate:hunter2@10.0.0.1",
        "[store]\nurl \"redis://gate:hunter2@10.0.0.1\"",
        "[store]\nurl = \"redis://gate:hunter2@10.0.0.1\" deadline = \"5ms\"",
        "[store]\ndeadline = \"5ms\" url = \"redis://gate:hunter2@10.0.0.1\"",
        "[store]\nulr = \"redis://gate:hunter2@10.0.0.1\" deadline = \"5ms\"",
        "[store]\nurl = \"redis://gate:hunter2@10.0.0.1\"\nurl = \"redis://gate:hunter2@10.0.0.1\"",
        "store.url = \"a\"\nstore.url = \"redis://gate:hunter2@10.0.0.1\"",
        "store = { url = \"redis://gate:hunter2@10.0.0.1\"",
        "[store]\nurl = [\n\"redis://gate:hunter2@10.0.0.1\n]",
        "[admin]\ntoken = hunter2",
        "[admin]\ntoken = \"hunter2",
        "[admin]\ntoken = 'hunter2' x",
        "[admin]\ntoken = [\n  \"hunter2\" \"hunter2\"\n]",
        "[admin]\ntoken =\naHVudGVyMg==hunter",
        "[admin]\ntoken = \"\"\"\nhunter2\\q\n\"\"\"",
        "[admin]\ntokn: hunter2",
        "salt = hunter2",
        "salt hunter2",
        "hunter2",
        "name = 'a' salt = 'hunter2'",
        // Of another shape.
        "store = \"redis://gate:hunter2@10.0.0.1\"",
        "store = [\"redis://gate:hunter2@10.0.0.1\"]",
        "store.url = [\"redis://gate:hunter2@10.0.0.1\"]",
        "store.url = { \"redis://gate:hunter2@10.0.0.1\" = 1 }",
        "store = { \"redis://gate:hunter2@10.0.0.1\" = 1 }",
        "admin = \"hunter2\"",
        "admin = [\"hunter2\"]",
        "admin.token = [\"hunter2\"]",
        "admin.token = { hunter2 = 1 }",
        "salt = [\"hunter2\"]",
        "salt = { a = \"hunter2\" }",
        // Under another name, and in another place.
        "[store]\nulr = \"redis://gate:hunter2@10.0.0.1\"",
        "store = { ulr = \"redis://gate:hunter2@10.0.0.1\", x = 1 }",
        "stroe = { url = \"redis://gate:hunter2@10.0.0.1\" }",
        "stroe.url = \"redis://gate:hunter2@10.0.0.1\"",
        "[admin]\ntokn = \"hunter2\"",
        "[admin]\n\"token=hunter2\" = 1",
        "token = \"hunter2\"",
        "slat = \"hunter2\"",
        "[[rule]]\nname = 'a'\nquota = '1/s'\nsalt = \"hunter2\"",
        "[[rule]]\nname = 'a'\nquota = '1/s'\nadmin.token = \"hunter2\"",
        "listen = { http = \"redis://gate:hunter2@10.0.0.1\" }",
        "trusted_proxies = \"redis://gate:hunter2@10.0.0.1\"",
        "headers = \"redis://gate:hunter2@10.0.0.1\"",
        // Beside another mistake.
        "[admin]\ntoken = 'hunter2'\nx = 1",
        "admin = { token = 'hunter2', x = 1 }",
        "admin.token = [4711] # hunter2",
        "[store]\ndeadline = '1h' # redis://gate:hunter2@10.0.0.1",
    ] {
        assert_silent(&complaints(&Loader::new(), Format::Toml, text), text);
    }
}

#[test]
fn in_yaml() {
    for text in [
        // No YAML.
        "store:\n  url: \"redis://gate:hunter2@10.0.0.1",
        "store:\n  url: \"redis://gate:hunter2@10.0.0.1\" deadline: 5ms",
        "store:\n  url: redis://gate:hunter2@10.0.0.1: 6379",
        "store:\n  url: @hunter2",
        "store:\n  url: *hunter2",
        "store:\n  url: !hunter2!x y",
        "store:\n  url: a\n  url: redis://gate:hunter2@10.0.0.1",
        "store: {url: redis://u:hunter2@h, url: redis://u:hunter2@h}",
        "store: {url:redis://u:hunter2@h, url:redis://u:hunter2@h}",
        "store: {url: \"redis://gate:hunter2@10.0.0.1\"",
        "admin:\n  token: \"hunter2",
        "admin:\n  token: \"hunter2\\q\"",
        "admin:\n  token: hunter2: hunter2",
        "admin:\n  token: hunter2\n   hunter2: x",
        "salt: 'hunter2",
        "salt:hunter2\nname: x",
        "rule: []\rsalt: \"hunter2",
        // Of another shape.
        "store: redis://gate:hunter2@10.0.0.1",
        "store:\n  redis://gate:hunter2@10.0.0.1",
        "store:\n  url:redis://gate:hunter2@10.0.0.1",
        "store:\n  - redis://gate:hunter2@10.0.0.1",
        "store: {url:redis://gate:hunter2@10.0.0.1}",
        "store: {redis://gate:hunter2@10.0.0.1}",
        "store:\n  url: [redis://gate:hunter2@10.0.0.1]",
        "admin: hunter2",
        "admin: {hunter2}",
        "admin: {token:hunter2}",
        "admin:\n  token:\n    hunter2: x",
        "salt: [hunter2]",
        "salt: {hunter2}",
        "redis://gate:hunter2@10.0.0.1",
        "token:hunter2",
        "- hunter2",
        "rule: []\n---\nsalt: hunter2",
        "rule: []\n---\n{admin: {token: hunter2}}",
        "admin:\n  token: #hunter2\n  x: 1",
        "{admin: {token: #hunter2\n, x: 1}}",
        "admin:\n  token: !hunter2 x",
        "admin:\n  token: &hunter2 x",
        // Under another name, and in another place.
        "store:\n  ulr: redis://gate:hunter2@10.0.0.1",
        "stroe: {url: redis://gate:hunter2@10.0.0.1}",
        "admin:\n  tokn: hunter2",
        "admin:\n  tokn: #hunter2",
        "slat: hunter2",
        "x: &a hunter2\nadmin: {token: *a}",
        // Beside another mistake.
        "{admin: {token: hunter2}, x: 1}",
        "store: {url: 'redis://u:hunter2@h', deadline: 1h}",
    ] {
        assert_silent(&complaints(&Loader::new(), Format::Yaml, text), text);
    }
}

#[test]
fn numbers_are_secrets_too() {
    for text in ["salt = 4711", "admin.token = 4711", "store.url = 4711", "store = 4711"] {
        let shown = complaints(&Loader::new(), Format::Toml, text).to_string();
        assert!(!shown.contains("4711"), "{shown}");
    }
}

#[test]
fn of_what_something_else_stands_over() {
    let loader = Loader::new()
        .environment([("TOLLGATE_ADMIN_TOKEN", "hunter2"), ("TOLLGATE_SALT", "hunter2")])
        .flag("--store", Setting::StoreUrl, "redis://h");
    for text in [
        "{store: {url: 'redis://u:hunter2@h', deadline: 1h}}",
        "{store: hunter2, headers: x}",
        "{salt: hunter2, admin: [hunter2], headers: x}",
    ] {
        assert_silent(&complaints(&loader, Format::Yaml, text), text);
    }
}

#[test]
fn of_settings_that_are_right() {
    let text = "salt = 'hunter2'\nadmin.token = 'hunter2 and hunter2'\n\
                store.url = 'redis://u:hunter2@h'\n";
    let loader = Loader::new().flag("--store", Setting::StoreUrl, "redis://u:hunter2@h");
    let loaded = loader.load_text(Source::new("a.toml", text), Format::Toml).unwrap();
    let shown = format!("{loaded:?}{loader:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// As many as a file may hold, all in one line.
#[test]
fn very_many_take_little_time() {
    let fields = |after: &str| -> Vec<String> {
        (0..150_000).map(|number| format!("\"a{number}\"{after}")).collect()
    };
    for text in [fields(":1").join(","), fields(": 1").join(", "), fields("").join(",")] {
        let text = format!("{{admin: {{{text}}}}}");
        let start = Instant::now();
        let _ = complaints(&Loader::new(), Format::Yaml, &text).to_string();
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}

/// Whatever slip of the finger there is in a file with secrets.
#[test]
fn whatever_letter_is_wrong() {
    let toml = "salt = \"hunter2\"\n[store]\ndeadline = \"50ms\"\nurl = \"redis://u:hunter2@h\"\n\
                prefix = \"a\"\n[admin]\ntoken = \"hunter2 hunter2 hunter2\"\n[[rule]]\nname = \"a\"\n\
                quota = \"1/s\"\n";
    let yaml = "salt: hunter2\nstore: {deadline: 50ms, url: 'redis://u:hunter2@h', prefix: a}\n\
                admin:\n  token: hunter2 hunter2 hunter2\nrule:\n- name: a\n  quota: 1/s\n";
    for (format, text) in [(Format::Toml, toml), (Format::Yaml, yaml)] {
        for (at, _) in text.char_indices() {
            for put in ["", "\"", "'", "=", ":", "[", "{", "}", "#", "\n", " ", "-", ",", "x"] {
                let (before, after) = text.split_at(at);
                for changed in
                    [format!("{before}{put}{after}"), format!("{before}{put}{}", &after[1..])]
                {
                    let shown = shown(&complaints(&Loader::new(), format, &changed));
                    assert!(!shown.contains("hunter2"), "{changed}\ngives\n{shown}");
                }
            }
        }
    }
}
