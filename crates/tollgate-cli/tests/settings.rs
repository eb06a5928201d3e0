//! The real binary with a file of settings, a Redis, and somebody who changes the file.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_testkit::redis::{Server as Redis, wait_for};

const TOKEN: &str = "a token nobody guesses";

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Puts a file in the place of the one before, at once, as editors do.
    fn write(&self, text: &str) -> PathBuf {
        let (path, draft) = (self.0.join("tollgate.toml"), self.0.join("draft"));
        fs::write(&draft, text).unwrap();
        fs::rename(&draft, &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that is killed if a test ends before it does.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(config: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["serve", "--http", "127.0.0.1:0", "--config"]).arg(config).args(more);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TOLLGATE_") {
                command.env_remove(name);
            }
        }
        command.env("TOLLGATE_ADMIN_TOKEN", TOKEN).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://").unwrap().to_owned();
        Self { child, address }
    }

    fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             authorization: Bearer {TOKEN}\r\ncontent-length: {length}\r\n\r\n{body}",
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())))
    }

    fn take(&self, user: &str) -> (u16, Value) {
        let body = json!({ "subject": { "user": user } }).to_string();
        self.send("POST", "/v1/take", &body)
    }

    /// The limit that one more request of a user nobody else is meets.
    fn limit(&self) -> u64 {
        let body = json!({ "subject": { "user": "somebody" } }).to_string();
        let (_, peeked) = self.send("POST", "/v1/peek", &body);
        peeked["outcomes"][0]["limit"].as_u64().unwrap()
    }

    fn detail(&self) -> Value {
        self.send("GET", "/readyz", "").1["detail"].clone()
    }

    fn metrics(&self) -> String {
        self.send("GET", "/metrics", "").1.as_str().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rule(limit: u64) -> String {
    format!(
        "[[rule]]\nname = 'per-user'\nby = ['user']\nquota = '{limit}/h'\nalgorithm = 'fixed-window'\n"
    )
}

#[test]
fn a_changed_file_is_in_force_by_itself_on_a_signal_and_on_request() {
    let folder = Folder::new("reload");
    let server = Server::start(&folder.write(&rule(3)), &[]);
    assert_eq!(server.take("u").1["outcomes"][0]["remaining"], 2);

    // By itself; what was counted stays counted.
    folder.write(&rule(10));
    wait_for("the new limit", || (server.limit() == 10).then_some(()));
    assert_eq!(server.take("u").1["outcomes"][0]["remaining"], 8);

    // A broken file changes nothing, and everybody can see that it is broken.
    folder.write("[[rule]]\nname = 'per-user'\nby = ['user']\nquota = '3/fortnight'\n");
    let detail = wait_for("the complaint", || server.detail().as_str().map(str::to_owned));
    assert!(
        detail.contains("the policy in force is an old one") && detail.contains("fortnight"),
        "{detail}"
    );
    assert!(detail.contains("tollgate.toml:4"), "{detail}");
    assert_eq!(server.limit(), 10);
    let (status, problem) = server.send("POST", "/v1/reload", "");
    assert_eq!(status, 422, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("^^^"), "{problem}");
    let failures = |metrics: &str| {
        let line = metrics.lines().find(|line| line.contains("reloads_total{result=\"failure\"}"));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(failures(&server.metrics()) >= 1);

    // Nor does one whose store no Redis is at, and nobody is told its password.
    for store in ["redis://a,b:hunter2@a,b", "unx:///s?password=hunter2", "redis:hunter2://h@"] {
        folder.write(&format!("{}[store]\nurl = \"{store}\"\nx = 1\n", rule(3)));
        let (status, problem) = server.send("POST", "/v1/reload", "");
        assert_eq!(status, 422, "{problem}");
        let told = format!("{problem} {}", server.detail());
        assert!(told.contains("tollgate.toml:7"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    assert_eq!(server.limit(), 10);

    // Mended: on request, and once more on a signal.
    folder.write(&rule(20));
    let (status, told) = server.send("POST", "/v1/reload", "");
    assert_eq!(status, 200, "{told}");
    assert_eq!((server.limit(), server.detail()), (20, Value::Null));
    let version = told["policy_version"].as_u64().unwrap();
    assert!(server.metrics().contains(&format!("tollgate_policy_version {version}\n")));
    let hangup = format!("kill -HUP {}", server.child.id());
    assert!(Command::new("sh").args(["-c", &hangup]).status().unwrap().success());
    let newer = format!("tollgate_policy_version {}\n", version + 1);
    wait_for("the signal to be heard", || server.metrics().contains(&newer).then_some(()));
}

/// Limits go down and up while many ask: nobody is left without an answer, and together they get what
/// the highest limit ever in force allows, and not one more.
#[test]
fn changing_limits_under_load_loses_no_decision_and_grants_none_too_many() {
    const CLIENTS: usize = 50;
    const HIGHEST: u64 = 4_000;
    let folder = Folder::new("load");
    let server = Server::start(&folder.write(&rule(HIGHEST)), &[]);
    let done = AtomicBool::new(false);
    let (granted, answered) = thread::scope(|scope| {
        let client = || {
            let (mut granted, mut answered) = (0, 0);
            while !done.load(Ordering::Relaxed) {
                let (status, decision) = server.take("u");
                assert!([200, 429].contains(&status), "{status}: {decision}");
                answered += 1;
                granted += u64::from(status == 200);
            }
            (granted, answered)
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        for limit in [100, 3_000, 1, HIGHEST, 50, HIGHEST] {
            folder.write(&rule(limit));
            wait_for("the new limit", || (server.limit() == limit).then_some(()));
        }
        // All that is left is taken.
        wait_for("a refusal", || (server.take("u").0 == 429).then_some(()));
        done.store(true, Ordering::Relaxed);
        let counts = clients.into_iter().map(|client| client.join().unwrap());
        counts.fold((0, 0), |sums, counts| (sums.0 + counts.0, sums.1 + counts.1))
    });
    assert!(answered > granted);
    // The last look took whatever the clients had left.
    let (_, peeked) =
        server.send("POST", "/v1/peek", &json!({ "subject": { "user": "u" } }).to_string());
    assert_eq!(peeked["outcomes"][0]["remaining"], 0);
    assert!(granted <= HIGHEST, "{granted} granted of {HIGHEST}");
}

#[test]
fn descriptors_are_decided_by_envoys_own_file() {
    let folder = Folder::new("envoy");
    let file = |limit: u64| {
        format!(
            "domain: shop\ndescriptors:\n  - key: remote_address\n    rate_limit: {{ unit: hour, \
             requests_per_unit: {limit} }}\n  - key: path\n    value: /login\n    shadow_mode: true\n    \
             rate_limit: {{ unit: day, requests_per_unit: 1 }}\n"
        )
    };
    let write = |text: &str| {
        let (path, draft) = (folder.0.join("shop.yaml"), folder.0.join("draft"));
        fs::write(&draft, text).unwrap();
        fs::rename(&draft, &path).unwrap();
        path
    };
    let path = write(&file(2));
    let config = folder.write("");
    let server = Server::start(&config, &["--envoy-config", path.to_str().unwrap()]);
    let ask = r#"{"domain":"shop","hitsAddend":1,"descriptors":[
        {"entries":[{"key":"remote_address","value":"192.0.2.7"}]},
        {"entries":[{"key":"path","value":"/login"}]},
        {"entries":[{"key":"nobody","value":"knows"}]}]}"#;
    for remaining in [1, 0] {
        let (status, told) = server.send("POST", "/json", ask);
        assert_eq!((status, &told["overallCode"]), (200, &json!("OK")), "{told}");
        let first = &told["statuses"][0];
        assert_eq!(first["limitRemaining"], remaining);
        let limit = json!({ "requestsPerUnit": 2, "unit": "HOUR" });
        assert_eq!(first["currentLimit"], limit);
        assert_eq!(told["statuses"][2], json!({ "code": "OK" }));
    }
    let (status, told) = server.send("POST", "/json", ask);
    assert_eq!((status, &told["overallCode"]), (429, &json!("OVER_LIMIT")), "{told}");
    let codes: Vec<&Value> =
        told["statuses"].as_array().unwrap().iter().map(|status| &status["code"]).collect();
    // The log-in is over its limit too, but only watched.
    assert_eq!(codes, ["OVER_LIMIT", "OK", "OK"]);

    // A broken file is told and changes nothing; a mended one is in force.
    write("domain: shop\ndescriptors:\n  - kay: remote_address\n");
    let detail = wait_for("the complaint", || server.detail().as_str().map(str::to_owned));
    assert!(detail.contains("the file of descriptors in force is an old one"), "{detail}");
    assert_eq!(server.send("POST", "/json", ask).0, 429);
    write(&file(5));
    wait_for("the new limit", || (server.send("POST", "/json", ask).0 == 200).then_some(()));
    assert_eq!(server.detail(), Value::Null);

    for (body, field) in [
        (r#"{"descriptors":[{"entries":[]}]}"#, "domain"),
        (r#"{"domain":"shop"}"#, "descriptors"),
        (
            r#"{"domain":"shop","descriptors":[{"limit":{"unit":"AEON"}}]}"#,
            "descriptors[0].limit.unit",
        ),
        ("{", "body"),
    ] {
        let (status, problem) = server.send("POST", "/json", body);
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{problem}");
    }
}

#[test]
fn servers_share_a_redis_and_decide_without_it() {
    let mut redis = Redis::start();
    let folder = Folder::new("redis");
    let text = format!("store.replicas = 2\n{}on_store_failure = 'local'\n", rule(4));
    let config = folder.write(&text);
    let url = redis.url();
    let servers = [(); 2].map(|()| Server::start(&config, &["--store", &url, "--deadline", "1s"]));
    let statuses = |user: &str, count: usize| -> Vec<u16> {
        (0..count).map(|turn| servers[turn % 2].take(user).0).collect()
    };
    assert_eq!(statuses("shared", 6), [200, 200, 200, 200, 429, 429]);
    let keys = redis.keys();
    assert!(keys.iter().any(|key| key.contains("per-user")), "{keys:?}");

    redis.kill();
    // Each grants its half.
    assert_eq!(statuses("alone", 6), [200, 200, 200, 200, 429, 429]);
    let told = servers[0].take("alone").1;
    assert_eq!(told["provenance"], "fallback");
    wait_for("the trouble to be told", || servers[0].detail().as_str().map(str::to_owned));

    redis.restart();
    let by_store = |_: &()| servers[0].take("back").1["provenance"] == "store";
    wait_for("the store to be asked again", || Some(()).filter(by_store));
    // One answer is not the end of an outage; two seconds of them are.
    let back = Instant::now();
    wait_for("an end of the trouble", || servers[0].detail().is_null().then_some(()));
    assert!(back.elapsed() < Duration::from_secs(20), "it is told for {:?}", back.elapsed());
}
