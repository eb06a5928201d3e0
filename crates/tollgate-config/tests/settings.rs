//! What files mean, and what stands over them.

use std::time::Duration;

use tollgate::{Algorithm, Costs, Enforcement, Fallback, Prefix, Resolution, Subject};
use tollgate_config::{
    Consistency, Dialect, Format, HeaderAxis, Loaded, Loader, Report, Setting, Settings, Source,
    WrongUrl,
};

const DESIGN: &str = include_str!("good/design.toml");
const EVERYTHING: &str = include_str!("good/everything.toml");
const EVERYTHING_YAML: &str = include_str!("good/everything.yaml");

fn load(name: &str, text: &str) -> Result<Loaded, Report> {
    Loader::new().load_text(Source::new(name, text), Format::of(name))
}

fn settings(name: &str, text: &str) -> Settings {
    load(name, text).unwrap_or_else(|report| panic!("{report}")).settings
}

fn messages(report: &Report) -> Vec<String> {
    report.findings().map(|found| found.message.to_owned()).collect()
}

#[test]
fn the_example_of_the_design_loads_as_it_stands() {
    let Settings { store, policy, trusted_proxies, .. } = settings("design.toml", DESIGN);
    assert_eq!(store.url.unwrap().reveal(), "redis://127.0.0.1:6379");
    assert_eq!(trusted_proxies[0].to_string(), "127.0.0.0/8");
    let names: Vec<&str> = policy.rules().map(|rule| rule.name()).collect();
    assert_eq!(names, ["per-ip", "login", "plan"]);
    let login = policy.rule(1).unwrap();
    assert_eq!(login.metered_by(), Algorithm::SlidingLog);
    assert_eq!(login.fallback(), Fallback::Deny);
    assert!(login.is_hashed());

    let limit = |subject: &Subject<'_>| match policy.resolve(subject, &Costs::default()) {
        Resolution::Charges(charges) => charges.set().charges()[0].meter.limit(),
        other => panic!("{other:?}"),
    };
    let plan = |tenant, plan| limit(&Subject::new().with("tenant", tenant).with("plan", plan));
    assert_eq!(plan("small", "free"), 100);
    assert_eq!(plan("small", "paid"), 10_000);
    assert_eq!(plan("acme", "free"), 50_000);
    assert_eq!(limit(&Subject::new().with("ip", "192.0.2.7").with("route", "/api/x")), 120);
    let inside = Subject::new().with("ip", "10.9.8.7").with("route", "/api/x");
    let allowed = policy.resolve(&inside, &Costs::default());
    assert_eq!(allowed, Resolution::Allowlisted { entry: 0 });
}

#[test]
fn an_empty_file_means_the_defaults() {
    for (name, text) in [("a.toml", ""), ("a.yaml", ""), ("a.yml", "# nothing\n")] {
        let found = settings(name, text);
        let default = Settings::default();
        assert_eq!(found.store, default.store);
        assert_eq!(found.listen, default.listen);
        assert_eq!(found.metrics, default.metrics);
        assert_eq!(found.audit, default.audit);
        assert_eq!(found.headers, default.headers);
        assert_eq!(found.ipv6_prefix, default.ipv6_prefix);
        assert_eq!(found.policy.rules().len(), 0);
        assert!(found.admin_token.is_none());
    }
}

#[test]
fn every_setting_is_taken_over() {
    let found = settings("everything.toml", EVERYTHING);
    assert_eq!(found.headers, Dialect::Draft7);
    assert_eq!(found.ipv6_prefix, 56);
    assert_eq!(found.store.deadline, Duration::from_millis(25));
    assert_eq!(found.store.prefix.to_string(), "shop");
    assert_eq!(found.store.connections, 8);
    assert_eq!(found.store.max_in_flight, 5_000);
    assert_eq!(found.store.deny_cache, 0);
    assert_eq!(found.store.max_keys, 200_000);
    assert_eq!(found.store.max_log_entries, 2_000_000);
    assert_eq!(found.store.replicas.get(), 3);
    assert_eq!(found.listen.http.as_deref(), Some("0.0.0.0:80"));
    assert_eq!(found.listen.grpc, None);
    assert_eq!(found.listen.resp.as_deref(), Some("[::1]:6380"));
    assert_eq!(found.admin_token.as_ref().unwrap().reveal(), "s3cret and long enough");
    assert_eq!(found.audit.file.as_deref(), Some("/var/log/tollgate.jsonl".as_ref()));
    assert!(found.audit.refusals_only);
    assert!(!found.metrics.prometheus);
    assert_eq!(found.metrics.otlp.as_deref(), Some("http://127.0.0.1:4317"));
    let tenant = HeaderAxis { axis: "tenant".into(), header: "x-tenant".into() };
    assert_eq!(found.axes, [tenant]);

    let rule = found.policy.rule(0).unwrap();
    assert_eq!((rule.safety_margin(), rule.counted_unit()), (5, "tokens"));
    let beside = &found.rules[0];
    assert_eq!((beside.consistency, beside.overshoot), (Consistency::Leased, 3));
    assert_eq!(beside.colocate.as_deref(), Some("tenant"));
    assert_eq!(beside.wait, Some(Duration::from_millis(500)));
    assert!(!beside.critical);
    assert!(found.rules[1].critical);
    assert_eq!(found.policy.rule(1).unwrap().enforcement(), Enforcement::AnyOf(7));
    assert_eq!(found.policy.rule(2).unwrap().enforcement(), Enforcement::Shadow);
    let denied = found.policy.resolve(&Subject::new().with("user", "mallory"), &Costs::default());
    assert_eq!(denied, Resolution::Denylisted { entry: 1 });
}

#[test]
fn yaml_says_the_same_as_toml() {
    let one = format!("{:?}", settings("everything.toml", EVERYTHING));
    let two = format!("{:?}", settings("everything.yaml", EVERYTHING_YAML));
    assert_eq!(one, two);
}

#[test]
fn flags_stand_over_the_environment_and_that_over_the_file() {
    let source = || Source::new("a.toml", "headers = 'off'\nstore.url = 'redis://file'\n");
    let base =
        || Loader::new().environment([("HOME", "/root"), ("TOLLGATE_STORE_URL", "redis://env")]);
    let url = |loader: Loader| {
        let loaded = loader.load_text(source(), Format::Toml).unwrap();
        assert_eq!(loaded.settings.headers, Dialect::Off);
        loaded.settings.store.url.unwrap().reveal().to_owned()
    };
    assert_eq!(url(Loader::new()), "redis://file");
    assert_eq!(url(base()), "redis://env");
    let flag = || Loader::new().flag("--store", Setting::StoreUrl, "redis://flag");
    assert_eq!(url(flag()), "redis://flag");
    // In whatever order they are given.
    assert_eq!(url(flag().environment([("TOLLGATE_STORE_URL", "redis://env")])), "redis://flag");
    assert_eq!(url(base().environment([("TOLLGATE_STORE_URL", "")])), "redis://env");
}

#[test]
fn every_variable_reaches_its_setting() {
    let variables = [
        (Setting::StoreUrl, "redis://x"),
        (Setting::StoreDeadline, "1s"),
        (Setting::StorePrefix, "p"),
        (Setting::StoreConnections, "2"),
        (Setting::StoreMaxInFlight, "3"),
        (Setting::StoreDenyCache, "0"),
        (Setting::StoreMaxKeys, "1_000"),
        (Setting::StoreMaxLogEntries, "6"),
        (Setting::StoreReplicas, "7"),
        (Setting::Http, "off"),
        (Setting::Grpc, "[::]:1"),
        (Setting::Resp, "h:2"),
        (Setting::AdminToken, "sixteen letters!"),
        (Setting::Headers, "envoy-03"),
        (Setting::TrustedProxies, "10.0.0.0/8, ::1"),
        (Setting::Ipv6Prefix, "48"),
        (Setting::Salt, "s"),
        (Setting::AuditFile, "/a"),
        (Setting::AuditRefusalsOnly, "true"),
        (Setting::MetricsPrometheus, "false"),
        (Setting::MetricsOtlp, "http://o"),
    ];
    assert_eq!(variables.len(), Setting::all().len());
    let named = variables.map(|(setting, value)| (setting.variable(), value));
    let found = Loader::new().environment(named).load().unwrap().settings;
    let Settings { store, listen, .. } = &found;
    assert_eq!(store.url.as_ref().unwrap().reveal(), "redis://x");
    assert_eq!((store.deadline.as_secs(), store.prefix.to_string().as_str()), (1, "p"));
    assert_eq!((store.connections, store.max_in_flight, store.deny_cache), (2, 3, 0));
    assert_eq!((store.max_keys, store.max_log_entries), (1_000, 6));
    assert_eq!(store.replicas.get(), 7);
    let addresses = (listen.http.as_deref(), listen.grpc.as_deref(), listen.resp.as_deref());
    assert_eq!(addresses, (None, Some("[::]:1"), Some("h:2")));
    assert_eq!(found.admin_token.unwrap().reveal(), "sixteen letters!");
    assert_eq!(found.headers, Dialect::Envoy03);
    assert_eq!(found.trusted_proxies.len(), 2);
    assert_eq!(found.ipv6_prefix, 48);
    assert!(found.audit.file.is_some() && found.audit.refusals_only);
    assert!(!found.metrics.prometheus && found.metrics.otlp.is_some());
}

#[test]
fn a_wrong_variable_is_named_and_an_almost_right_one_is_doubted() {
    let report = Loader::new()
        .environment([("TOLLGATE_STORE_DEADLINE", "soon"), ("TOLLGATE_STORE_ULR", "redis://x")])
        .load()
        .unwrap_err();
    let places: Vec<&str> = report.findings().map(|found| found.place.unwrap().source).collect();
    assert_eq!(places, ["TOLLGATE_STORE_DEADLINE", "environment"]);
    assert_eq!(
        messages(&report),
        ["\"deadline\" must be a time, not \"soon\"", "unknown variable \"TOLLGATE_STORE_ULR\""]
    );
}

#[test]
fn a_variable_that_is_no_setting_is_doubted_only_if_it_is_almost_one() {
    let doubts = |name: &str| {
        let loader = Loader::new().environment([(name, "x")]);
        let loader = loader.other_variables(["TOLLGATE_LOG", "TOLLGATE_CONFIG"]);
        let warnings = loader.load().unwrap().warnings;
        warnings.findings().map(|found| found.help.unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The last two are what Kubernetes calls a service named tollgate.
    for name in ["TOLLGATE_LOG", "TOLLGATE_CONFIG", "TOLLGATE_PORT", "TOLLGATE_SERVICE_HOST"] {
        assert_eq!(doubts(name), [""; 0], "{name}");
    }
    for (name, meant) in [
        ("TOLLGATE_CONFG", "write TOLLGATE_CONFIG"),
        ("TOLLGATE_HTP", "write TOLLGATE_HTTP"),
        ("TOLLGATE_STORE_URI", "write TOLLGATE_STORE_URL"),
    ] {
        assert_eq!(doubts(name), [meant], "{name}");
    }
}

#[test]
fn an_address_of_a_store_needs_a_scheme_and_the_rest_is_for_the_store_to_judge() {
    let loader = |url: &str| Loader::new().flag("--store", Setting::StoreUrl, url);
    for url in ["redis://h", "REDIS://h", "rediss+Cluster://a,b", "unix:///s", "redis://a,b"] {
        let found = loader(url).load().unwrap_or_else(|report| panic!("{report}")).settings;
        assert_eq!(found.store.url.unwrap().reveal(), url);
    }
    for (url, wrong, meant) in [
        ("unx:///s", "the scheme \"unx\" is that of no store", "like \"unix:///run/"),
        ("redis+sentinal://h/s", "the scheme \"redis+sentinal\"", "like \"redis+sentinel://"),
        ("a:b://h", "its scheme is that of no store", "like \"redis://"),
        ("10.0.0.1:6379", "it has no scheme", "unix://, or \"memory\""),
    ] {
        let report = loader(url).load().unwrap_err();
        let found = report.findings().next().unwrap();
        assert!(found.message.contains(wrong), "{report}");
        assert!(found.help.unwrap().contains(meant), "{report}");
    }
    let nobody = |_: &str| Err(WrongUrl { wrong: "there is none".into(), help: "give up".into() });
    let report = loader("redis://h").store_urls(nobody).load().unwrap_err();
    assert_eq!(messages(&report), ["the store's URL: there is none"]);
    assert!(loader("memory").store_urls(nobody).load().is_ok());
}

#[test]
fn keys_may_begin_as_the_library_lets_them() {
    let long = "p".repeat(65);
    for text in ["shop:eu", "a-_./@+~,!$:b", &long[..64], "", "a{b}", "a*", "a b", "\u{e9}", &long]
    {
        let file = Source::new("a.toml", format!("store.prefix = {text:?}"));
        let read = Loader::new().load_text(file, Format::Toml);
        let read = read.map(|loaded| loaded.settings.store.prefix);
        assert_eq!(read.as_ref().ok(), text.parse::<Prefix>().ok().as_ref(), "{text}: {read:?}");
    }
}

#[test]
fn a_request_that_could_meet_no_rule_is_a_warning() {
    let rule = |more: &str| format!("[[rule]]\nname = 'a'\nby = ['tenant']\nquota = '1/s'\n{more}");
    let warnings = |text: String| messages(&load("a.toml", &text).unwrap().warnings);
    assert_eq!(
        warnings(rule("")),
        ["a request without \"tenant\" skips rule \"a\", and could meet no other"]
    );
    for covered in [
        "missing = 'share'",
        "missing = 'deny'",
        "[[rule]]\nname = 'b'\nquota = '9/s'",
        "[[rule]]\nname = 'b'\nby = ['ip']\nquota = '9/s'",
    ] {
        assert_eq!(warnings(rule(covered)), [""; 0], "{covered}");
    }
    for not in [
        "[[rule]]\nname = 'b'\nwhen = { route = '/x' }\nquota = '9/s'",
        "[[rule]]\nname = 'b'\nunit = 'tokens'\nquota = '9/s'",
    ] {
        assert_eq!(warnings(rule(not)).len(), 1, "{not}");
    }
}

#[test]
fn a_missing_file_says_how_to_get_one() {
    let report = Loader::new().file("/nowhere/tollgate.toml").load().unwrap_err();
    let shown = report.to_string();
    assert!(shown.contains("/nowhere/tollgate.toml") && shown.contains("tollgate init"), "{shown}");
}

#[test]
fn policies_are_numbered_as_they_are_read() {
    let loader = Loader::new();
    let version = || loader.load().unwrap().settings.policy.version();
    assert_eq!([version(), version()], [1, 2]);
}

#[test]
fn windows_follow_the_calendar_where_a_file_says_so() {
    let text = r#"
        [[rule]]
        name = "bill"
        by = ["tenant"]
        tier = "plan"
        quota = { free = "1000/calendar-month", paid = "50_000/calendar-month; 10/s" }
        algorithm = "fixed-window"
        timezone = "Europe/Berlin"
        starts_on = 15
        missing = "share"
        [[override]]
        rule = "bill"
        when = { tenant = "acme" }
        quota = "7/calendar-day"
    "#;
    let source = Source::new("tollgate.toml", text);
    let settings = Loader::new().load_text(source, Format::Toml).unwrap().settings;
    let meters = |tenant: &str, plan: &str| -> Vec<String> {
        let subject = Subject::new().with("tenant", tenant).with("plan", plan);
        let resolution = settings.policy.resolve(&subject, &Costs::default());
        let charges = resolution.charges().unwrap().set().charges();
        charges.iter().map(|charge| charge.meter.to_string()).collect()
    };
    assert_eq!(
        meters("x", "paid"),
        ["50000/calendar-month-15@Europe/Berlin fixed-window", "10/s fixed-window"]
    );
    assert_eq!(meters("x", "free"), ["1000/calendar-month-15@Europe/Berlin fixed-window"]);
    assert_eq!(meters("acme", "free"), ["7/calendar-day@Europe/Berlin fixed-window"]);
}
