//! Every example runs to its end, and is answered as it should be.

use std::path::Path;
use std::process::Command;

/// Runs an example as a user would, asking itself, and returns what it prints.
fn run(name: &str) -> String {
    // The folder the tests were built into, so that what is there already is used again.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder in the target's");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).arg("run").arg("--target-dir").arg(target);
    cargo.args(["--quiet", "--locked", "--offline", "--package", "tollgate-tower"]);
    cargo.args(["--example", name]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.args(["--", "demo"]).output();
    let output = output.expect("cargo ran this test, so it can be run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed\n{said}{complained}");
    said
}

#[test]
fn every_example_runs_and_is_answered_as_it_should_be() {
    let expected: [(&str, &[&str]); 6] = [
        ("axum_per_ip", &["200 OK", "200 OK", "200 OK", "429 Too"]),
        ("axum_login", &["200 OK", "401 ", "401 ", "401 ", "429 Too", "401 "]),
        ("axum_tiers", &["200 OK", "200 OK", "429 Too", "200 OK", "200 OK", "429 Too"]),
        ("ai_spend", &["r=900", "r=200", "429 Too"]),
        ("outgoing", &["200 OK"; 12]),
        ("tonic_limits", &["served", "served", "ResourceExhausted", "served"]),
    ];
    for (name, answers) in expected {
        let said = run(name);
        assert_eq!(said.lines().count(), answers.len(), "{name}\n{said}");
        for (line, answer) in said.lines().zip(answers) {
            assert!(line.contains(answer), "{name}: {line:?} has no {answer:?}\n{said}");
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    assert_eq!(files.count(), expected.len(), "an example is not run here");
}
