//! One decision from the shell, on a real Redis.
#![cfg(unix)]

use std::process::{Command, Output};

use serde_json::Value;
use tollgate_testkit::redis::Server;

/// Exit code, standard output and standard error of the command.
fn tollgate(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).env_remove("TOLLGATE_STORE_URL").env_remove("TOLLGATE_STORE_PREFIX");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn the_exit_code_is_the_verdict() {
    let redis = Server::start();
    let url = redis.url();
    let ask = |verb: &str, rest: &[&str]| {
        let fixed = [verb, "user:42", "--quota", "2/h", "--store", &url];
        tollgate(&[&fixed[..], rest].concat())
    };
    let bucket = ["--algorithm", "token-bucket"];
    assert_eq!(ask("peek", &bucket).0, 0);
    for _ in 0..2 {
        let (code, out, err) = ask("take", &bucket);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        assert!(out.starts_with("2/h token-bucket: allowed; "), "{out}");
    }
    let (code, out, _) = ask("take", &bucket);
    assert_eq!(code, 1);
    assert!(
        out.starts_with("2/h token-bucket: refused, try again in 1800 s; 0 of 2 left"),
        "{out}"
    );
    assert_eq!(ask("peek", &bucket).0, 1);
    // Another algorithm, another bucket.
    assert_eq!(ask("take", &[]).0, 0);
    let (code, out, _) = ask("take", &["--algorithm", "token-bucket", "--cost", "3"]);
    assert_eq!(code, 1);
    assert!(out.contains("refused, for such a cost can never fit"), "{out}");

    let (code, out, _) = ask("reset", &bucket);
    assert_eq!(code, 0);
    assert!(out.starts_with("2/h token-bucket: forgotten\n"), "{out}");
    // One by hand was forgotten; a rule's of the same value has another name.
    assert!(out.ends_with("buckets of rules stay as they are; POST /v1/reset forgets those\n"));
    let (code, out, _) = ask("take", &["--algorithm", "token-bucket", "--json"]);
    assert_eq!(code, 0);
    let decision: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(decision["verdict"], "allow");
    assert_eq!(decision["provenance"], "store");
    assert_eq!(decision["outcomes"][0]["rule"], "user:42");
    assert_eq!(decision["outcomes"][0]["remaining"], 1);
}

#[test]
fn several_quotas_are_one_decision() {
    let redis = Server::start();
    let url = redis.url();
    let ask = ["take", "k", "--quota", "1/min; 5/day", "--store", &url];
    assert_eq!(tollgate(&ask).0, 0);
    let (code, out, _) = tollgate(&ask);
    assert_eq!(code, 1);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("1/min sliding-window: refused"), "{out}");
    // The day was not charged for what the minute refused.
    assert!(lines[1].starts_with("5/day sliding-window: allowed; 4 of 5 left"), "{out}");
}

#[test]
fn no_store_and_a_store_in_memory_and_one_set_to_nothing_are_the_same() {
    let take = |store: &str, prefix: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["take", "k", "--quota", "1/min"]);
        command.env("TOLLGATE_STORE_URL", store).env("TOLLGATE_STORE_PREFIX", prefix);
        let Output { status, stderr, .. } = command.output().unwrap();
        (status.code().unwrap(), String::from_utf8(stderr).unwrap())
    };
    for store in ["", "memory"] {
        let (code, said) = take(store, "shop:eu");
        assert!(code == 2 && said.contains("a bucket in memory would end"), "{store:?}: {said}");
    }
    let redis = Server::start();
    for prefix in ["", "shop:eu"] {
        assert_eq!(take(&redis.url(), prefix), (0, String::new()), "{prefix:?}");
    }
    let mut keys = redis.keys();
    keys.sort();
    assert_eq!(keys, ["shop:eu:{k}::sw:60s", "tollgate:{k}::sw:60s"]);
}

#[test]
fn what_is_wrong_is_said_with_the_remedy_and_exits_with_2() {
    let cases: [(&[&str], &str); 7] = [
        (
            &["take", "k", "--quota", "1/min"],
            "name a store that outlives it, such as --store redis://",
        ),
        (&["take", "k", "--quota", "1/min", "--store", "http://h"], "redis://"),
        (&["take", "k", "--quota", "often", "--store", "redis://127.0.0.1:1"], "--quota: "),
        (
            &[
                "take",
                "k",
                "--quota",
                "1/min",
                "--algorithm",
                "tocken",
                "--store",
                "redis://127.0.0.1:1",
            ],
            "token-bucket",
        ),
        (
            &["take", "k", "--quota", "1/min", "--cost", "0", "--store", "redis://127.0.0.1:1"],
            "a whole number from 1",
        ),
        (&["take", "", "--quota", "1/min", "--store", "redis://127.0.0.1:1"], "the key is empty"),
        // Nobody listens there.
        (&["take", "k", "--quota", "1/min", "--store", "redis://127.0.0.1:1"], "failed to "),
    ];
    for (args, remedy) in cases {
        let (code, out, err) = tollgate(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(remedy), "{args:?}: {err}");
    }
}
