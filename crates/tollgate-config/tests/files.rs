//! Whole files: what is wrong with the bad ones, word by word, and what the good ones mean.
//!
//! Beside every file in `bad/` lies what is said about it. After changing a message run
//! `BLESS=1 cargo test -p tollgate-config --test files`, and read the difference.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_config::{Format, Loader, Report, Source};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The files of a folder that are settings, in order, by their names.
fn files(name: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<(String, String)> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension != "txt"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn complaints(name: &str, text: String) -> Report {
    let read = Loader::new().load_text(Source::new(name, text), Format::of(name));
    read.map(|loaded| panic!("{name} is right: {}", loaded.warnings)).unwrap_err()
}

#[test]
fn every_bad_file_is_complained_about_as_written() {
    let bad = files("bad");
    assert!(bad.len() >= 30, "only {} bad files", bad.len());
    let mut wrong = Vec::new();
    for (name, text) in bad {
        let said = complaints(&name, text).to_string();
        let expected = folder("bad").join(format!("{name}.txt"));
        if std::env::var_os("BLESS").is_some() {
            fs::write(&expected, &said).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap_or_default();
        if said != expected {
            wrong.push(format!("{name}: expected\n{expected}\nbut it said\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_complaint_points_at_its_line_and_says_what_to_write() {
    for (name, text) in files("bad") {
        let lines = text.lines().count();
        let report = complaints(&name, text);
        assert!(report.counts().0 > 0, "{name}");
        for found in report.findings() {
            let place =
                found.place.unwrap_or_else(|| panic!("{name}: {} is nowhere", found.message));
            assert_eq!(place.source, name);
            assert!((1..=lines + 1).contains(&place.line), "{name}: line {}", place.line);
            assert!(place.column >= 1);
            assert!(!found.message.is_empty());
        }
    }
}
