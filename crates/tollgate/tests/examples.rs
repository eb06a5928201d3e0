//! Every example runs to its end, where its own assertions have held, and has something to say.

use std::path::Path;
use std::process::Command;

/// Runs an example as a user would, and returns what it prints.
fn run(name: &str) -> String {
    // The folder the tests were built into, so that what is there already is used again.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder in the target's");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).arg("run").arg("--target-dir").arg(target);
    cargo.args(["--quiet", "--locked", "--offline", "--package", "tollgate", "--example", name]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.output().expect("cargo ran this test, so it can be run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed\n{said}{complained}");
    said
}

#[test]
fn every_example_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let names = files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned());
    let names: Vec<String> = names.collect();
    for name in &names {
        assert!(run(name).lines().count() > 1, "{name} says nothing");
    }
    let known = ["boundary_burst", "composite", "custom_key", "embed", "manual_clock", "tenants"];
    for name in known {
        assert!(names.iter().any(|found| found == name), "{name} was not run");
    }
}
