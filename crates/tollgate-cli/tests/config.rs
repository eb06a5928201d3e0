//! Files of settings, through the real binary.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

const DESIGN: &str = include_str!("../../tollgate-config/tests/good/design.toml");
const ENVOY: &str = "
domain: shop
descriptors:
  - key: account
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: account
    value: vip*
    rate_limit: {unit: hour, requests_per_unit: 500}
";

/// A directory that is gone when the test is.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-cli-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        fs::write(self.0.join(name), text).unwrap();
        self
    }

    /// Runs the command here: its exit code, and what it printed.
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let Output { status, stdout, stderr } =
            command.args(args).current_dir(&self.0).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// The same with `--json`, read.
    fn ask(&self, args: &[&str]) -> (i32, Value) {
        let (code, out, err) = self.run(&[args, &["--json"]].concat());
        let value = serde_json::from_str(&out);
        (code, value.unwrap_or_else(|error| panic!("{error}: {out}{err}")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn check_tells_right_from_wrong_by_its_exit_code() {
    let folder = Folder::new("check");
    folder.write("good.toml", DESIGN).write("bad.toml", "[[rule]]\nname = 'a'\nquota = '1/q'\n");
    folder.write("envoy.yaml", ENVOY).write("bad.yaml", "domain: ''\n");
    let (code, out, err) = folder.run(&["config", "check", "good.toml"]);
    assert_eq!((code, out.as_str()), (0, "good.toml: fine, 3 rules, 2 warnings\n"));
    assert!(err.starts_with("warning: a request without \"email\""), "{err}");
    let (code, out, err) = folder.run(&["config", "check", "good.toml", "bad.toml"]);
    assert_eq!(code, 1);
    assert!(out.ends_with("bad.toml: 1 error\n"), "{out}");
    assert!(err.contains("bad.toml:3:9"), "{err}");
    for (args, expected) in [
        (&["config", "check", "--envoy", "envoy.yaml"][..], 0),
        (&["config", "check", "--envoy", "--algorithm", "token-bucket", "envoy.yaml"], 0),
        (&["config", "check", "--envoy", "."], 1),
        (&["config", "check", "--envoy", "bad.yaml"], 1),
        (&["config", "check", "envoy.yaml"], 1),
        (&["config", "check", "missing.toml"], 2),
        (&["config", "check"], 2),
        (&["config", "check", "--envoy", "--algorithm", "magic", "envoy.yaml"], 2),
    ] {
        let (code, out, err) = folder.run(args);
        assert_eq!(code, expected, "{args:?}: {out}{err}");
    }
}

/// The text between the first quotes after `write it like`.
fn example(said: &str) -> &str {
    let (_, after) = said.split_once("write it like \"").unwrap_or_else(|| panic!("{said}"));
    after.split('"').next().unwrap()
}

#[test]
fn an_address_that_a_store_refuses_is_refused_where_it_is_written() {
    let folder = Folder::new("url");
    for (url, wrong, scheme) in [
        ("redis://a,b", "several hosts", "redis://"),
        ("redis://h:99999", "\"99999\" is no port", "redis://"),
        ("redis+sentinel://h", "does not name the service", "redis+sentinel://"),
        ("redis://user@h", "a user needs a password", "redis://"),
        ("redis://h?database=3", "\"database\" means nothing here", "redis://"),
        ("redis+cluster://h/1", "no databases but 0", "redis+cluster://"),
        ("unx:///run/redis.sock", "the scheme \"unx\" is none of", "unix://"),
        ("redis+sentinal://h/s", "the scheme \"redis+sentinal\" is none of", "redis+sentinel://"),
    ] {
        folder.write("a.toml", &format!("[store]\nurl = \"{url}\"\n"));
        let (code, out, err) = folder.run(&["config", "check", "a.toml"]);
        assert_eq!((code, out.as_str()), (1, "a.toml: 1 error\n"), "{url}: {err}");
        let served = folder.run(&["serve", "--config", "a.toml"]);
        assert_eq!((served.0, served.1.as_str()), (2, ""), "{url}");
        for said in [err, served.2, folder.run(&["config", "explain", "a.toml"]).2] {
            assert!(said.contains(wrong) && said.contains(" --> a.toml:2:7\n"), "{url}: {said}");
            let right = example(&said);
            assert!(right.starts_with(scheme), "{url}: {said}");
            assert!(right.parse::<tollgate_redis::RedisUrl>().is_ok(), "{said}");
        }
        let (code, _, err) = folder.run(&["serve", "--store", url]);
        assert!(code == 2 && err.contains(wrong) && err.contains(" --> --store:1:1\n"), "{err}");
    }
    for url in ["REDIS://h", "memory", ""] {
        folder.write("a.toml", &format!("[store]\nurl = \"{url}\"\n"));
        let (code, out, err) = folder.run(&["config", "check", "a.toml"]);
        assert_eq!((code, out.as_str()), (0, "a.toml: fine, 0 rules\n"), "{url}: {err}");
    }
}

#[test]
fn files_an_address_names_have_to_be_there() {
    let folder = Folder::new("tls");
    folder.write("a.toml", "[store]\nurl = \"rediss://u:hunter2@h?ca=/nowhere/ca.pem\"\n");
    let (code, _, err) = folder.run(&["config", "check", "a.toml"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("/nowhere/ca.pem") && err.contains(" --> a.toml:2:7\n"), "{err}");
    assert!(!err.contains("hunter2"), "{err}");
    // A server says the same, though not where.
    let (code, _, err) = folder.run(&["serve", "--http", "127.0.0.1:0", "--config", "a.toml"]);
    assert!(code == 2 && err.contains("/nowhere/ca.pem"), "{err}");
}

/// Without a store to ask, the settings show addresses of their own.
#[test]
fn every_example_of_an_address_is_right() {
    for (scheme, meant) in [
        ("unx", "unix://"),
        ("redi", "redis://"),
        ("reddiss", "rediss://"),
        ("redis+sentinal", "redis+sentinel://"),
        ("rediss+sentinal", "rediss+sentinel://"),
        ("redis+cluser", "redis+cluster://"),
        ("rediss+cluser", "rediss+cluster://"),
    ] {
        let url = format!("{scheme}://h");
        let loader = tollgate_config::Loader::new();
        let loader = loader.flag("--store", tollgate_config::Setting::StoreUrl, url);
        let said = loader.load().unwrap_err().to_string();
        let right = example(&said);
        assert!(right.starts_with(meant), "{said}");
        assert!(right.parse::<tollgate_redis::RedisUrl>().is_ok(), "{said}");
    }
}

#[test]
fn check_prints_json() {
    let folder = Folder::new("check-json");
    folder.write("bad.toml", "[[rule]]\nname = 'a'\nquota = '1/q'\n");
    let (code, found) = folder.ask(&["config", "check", "bad.toml"]);
    assert_eq!((code, &found["ok"]), (1, &json!(false)));
    let finding = &found["files"][0]["findings"][0];
    assert_eq!(
        (&finding["severity"], &finding["source"], &finding["line"], &finding["column"]),
        (&json!("error"), &json!("bad.toml"), &json!(3), &json!(9))
    );
    assert_eq!(finding["message"], "quota \"1/q\": unknown unit of time \"q\"");
}

#[test]
fn explain_says_which_rules_apply_and_why_the_others_do_not() {
    let folder = Folder::new("explain");
    folder.write("a.toml", DESIGN).write("bad.toml", "x = 1").write("envoy.yaml", ENVOY);
    let explain = |args: &[&str]| folder.run(&[&["config", "explain"], args].concat());
    let (code, out, _) = explain(&["a.toml", "ip=192.0.2.7", "route=/api/x", "tenant=acme"]);
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "per-ip  applies: 120/min sliding-window to per-ip:ip=192.0.2.7\n\
         login   does not apply: there is no method\n\
         plan    applies: 50000/day token-bucket to plan:tenant=acme (override 1)\n"
    );
    let (_, out, _) = explain(&["a.toml", "ip=10.1.1.1"]);
    assert!(out.starts_with("let through: ip 10.0.0.0/8 is on the allowlist"), "{out}");
    let (_, out, _) = explain(&["a.toml", "--cost", "tokens=5"]);
    assert!(out.ends_with("no rule applies: the request is let through, uncounted\n"), "{out}");
    assert_eq!(explain(&["bad.toml"]).0, 1);
    for wrong in [&["a.toml", "ip"][..], &["a.toml", "--cost", "tokens=0"], &["missing.toml"]] {
        assert_eq!(explain(wrong).0, 2, "{wrong:?}");
    }
}

#[test]
fn explain_prints_json() {
    let folder = Folder::new("explain-json");
    folder.write("a.toml", DESIGN).write("envoy.yaml", ENVOY);
    let (_, found) = folder.ask(&["config", "explain", "a.toml", "tenant=small", "plan=paid"]);
    let plan = &found["rules"][2];
    assert_eq!(plan["charges"][0]["key"], "plan:tenant=small");
    assert_eq!(plan["charges"][0]["quota"], "10000/day");
    assert_eq!(plan["source"], json!({ "tier": "paid" }));
    assert_eq!(found["rules"][0]["applies"], false);
    let (_, found) =
        folder.ask(&["config", "explain", "--envoy", "envoy.yaml", "domain=shop", "account=vip-1"]);
    assert_eq!(found["steps"][0]["via"], json!({ "pattern": "vip*" }));
    assert_eq!(found["charges"][0]["quota"], "500/h");
}

#[test]
fn explain_follows_a_descriptor() {
    let folder = Folder::new("explain-envoy");
    folder.write("envoy.yaml", ENVOY);
    let explain = |args: &[&str]| {
        folder.run(&[&["config", "explain", "--envoy", "envoy.yaml"], args].concat())
    };
    let (code, out, _) = explain(&["domain=shop", "account=bob"]);
    assert_eq!(code, 0);
    assert_eq!(
        out,
        "account=bob: found by its key alone\n\
         shop.account applies: 10/min fixed-window to envoy/shop:account=bob\n"
    );
    assert!(explain(&["domain=shop", "x=y"]).1.contains("x=y: not found\nno limit there"));
    assert!(explain(&["domain=none", "x=y"]).1.contains("there is no domain \"none\""));
    assert_eq!(explain(&["account=bob"]).0, 2);
}

#[test]
fn a_converted_file_passes_check() {
    let folder = Folder::new("convert");
    folder.write("envoy.yaml", ENVOY).write("bad.yaml", "domain: a\nlimits: []\n");
    let (code, out, _) = folder.run(&["config", "convert", "envoy.yaml"]);
    assert_eq!(code, 0);
    folder.write("converted.toml", &out);
    let (code, said, err) = folder.run(&["config", "check", "converted.toml"]);
    assert_eq!(code, 0, "{out}{said}{err}");
    let (_, out, _) = folder.run(&["config", "explain", "converted.toml", "account=vip-1"]);
    assert_eq!(
        out,
        "shop.account  applies: 500/h fixed-window to shop.account:account=vip-1 (override 1)\n"
    );
    let (_, out, _) =
        folder.run(&["config", "convert", "--algorithm", "sliding-log", "envoy.yaml"]);
    assert!(out.contains("algorithm = \"sliding-log\""), "{out}");
    assert_eq!(folder.run(&["config", "convert", "bad.yaml"]).0, 1);
}

#[test]
fn init_writes_a_file_that_passes_check_and_nothing_over_another() {
    let folder = Folder::new("init");
    assert_eq!(folder.run(&["init"]).0, 0);
    let (code, out, err) = folder.run(&["config", "check", "tollgate.toml"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "tollgate.toml: fine, 2 rules\n", ""));
    let (code, _, err) = folder.run(&["init"]);
    assert!(code == 2 && err.contains("--force"), "{err}");
    folder.write("tollgate.toml", "");
    assert_eq!(folder.run(&["init", "--force"]).0, 0);
    assert!(fs::metadata(folder.0.join("tollgate.toml")).unwrap().len() > 1_000);
    let (code, said) = folder.ask(&["init", "other.toml"]);
    assert_eq!((code, said), (0, json!({ "written": "other.toml" })));
}

#[test]
fn what_the_first_file_has_commented_out_is_right_too() {
    let folder = Folder::new("uncommented");
    folder.run(&["init"]);
    let text = fs::read_to_string(folder.0.join("tollgate.toml")).unwrap();
    let uncommented = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(inner) if inner.starts_with('[') || inner.contains(" = ") => inner,
        _ => line,
    });
    let uncommented: Vec<&str> = uncommented.collect();
    folder.write("all.toml", &uncommented.join("\n"));
    let (code, out, err) = folder.run(&["config", "check", "all.toml"]);
    assert_eq!((code, out.as_str()), (0, "all.toml: fine, 3 rules\n"), "{err}");
}

#[test]
fn every_dialect_of_the_middleware_can_be_asked_for() {
    let folder = Folder::new("dialects");
    for dialect in tollgate_tower::Dialect::ALL {
        folder.write("a.toml", &format!("headers = \"{dialect}\"\n"));
        assert_eq!(folder.run(&["config", "check", "a.toml"]).0, 0, "{dialect}");
    }
}

#[test]
fn schema_is_printed_as_it_is_in_the_repository() {
    let (code, out, _) = Folder::new("schema").run(&["config", "schema"]);
    assert_eq!(code, 0);
    assert_eq!(out, include_str!("../../../docs/tollgate.schema.json"));
}
