//! Files of envoyproxy/ratelimit: what they mean, and what is refused.

use std::fs;
use std::path::Path;

use tollgate::{Algorithm, Cost, Enforcement, MemoryStore, Verdict};
use tollgate_config::envoy::{Descriptor, Domains, Effect, Hits, Options, Rate, Unit, Via};
use tollgate_config::{Format, Loader, Report, Source};

const SHOP: &str = "
domain: shop
descriptors:
  - key: account
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: account
    value: vip
    rate_limit: {unit: hour, requests_per_unit: 5000}
  - key: account
    value: staff
  - key: account
    value: test*
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: account
    value: test-*-x
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: file
    value: docs/*
    share_threshold: true
    rate_limit: {unit: day, requests_per_unit: 100}
    descriptors:
      - key: file
        value: old/*
        rate_limit: {unit: week, requests_per_unit: 7}
  - key: partner
    rate_limit: {unlimited: true}
  - key: banned
    rate_limit: {unit: YEAR, requests_per_unit: 0}
  - key: region
    value: eu
    descriptors:
      - key: method
        value: POST
        shadow_mode: true
        detailed_metric: true
        rate_limit: {unit: Month, requests_per_unit: 3}
      - key: method
        value_to_metric: true
        rate_limit: {unit: second, requests_per_unit: 4}
";

fn read(text: &str, options: Options) -> Result<tollgate_config::envoy::Loaded, Report> {
    Domains::read([Source::new("envoy.yaml", text)], options)
}

fn domains(text: &str) -> Domains {
    read(text, Options::default()).unwrap_or_else(|report| panic!("{report}")).domains
}

fn take<'a>(entries: &'a [(&'a str, &'a str)]) -> Descriptor<'a> {
    Descriptor { entries, limit: None, hits: Hits::Take(Cost::ONE) }
}

/// The key and the meter of the one charge, or what came instead.
fn charge(domains: &Domains, entries: &[(&str, &str)]) -> Result<(String, String), Effect> {
    let charges = domains.resolve("shop", &[take(entries)]).unwrap();
    match charges.matches[0].effect {
        Effect::Charge(outcome) => {
            let charge = &charges.set.charges()[outcome];
            Ok((charge.key.to_string(), charge.meter.to_string()))
        }
        effect => Err(effect),
    }
}

#[test]
fn the_most_specific_descriptor_counts() {
    let shop = domains(SHOP);
    let meter = |entries: &[(&str, &str)]| charge(&shop, entries).map(|(_, meter)| meter);
    for (value, expected) in [
        ("alice", "10/min fixed-window"),
        ("", "10/min fixed-window"),
        ("vip", "5000/h fixed-window"),
        // The first pattern that matches, in the order they are written.
        ("test-1-x", "1/s fixed-window"),
        ("test", "1/s fixed-window"),
    ] {
        assert_eq!(meter(&[("account", value)]).as_deref(), Ok(expected), "{value}");
    }
    // A descriptor without a limit keeps the default away.
    assert_eq!(meter(&[("account", "staff")]), Err(Effect::Nothing));
    assert_eq!(meter(&[("unheard", "of")]), Err(Effect::Nothing));
    assert_eq!(meter(&[]), Err(Effect::Nothing));
}

#[test]
fn the_depth_has_to_be_right() {
    let shop = domains(SHOP);
    let meter = |entries: &[(&str, &str)]| charge(&shop, entries).map(|(_, meter)| meter);
    assert_eq!(meter(&[("region", "eu")]), Err(Effect::Nothing));
    assert_eq!(meter(&[("account", "alice"), ("more", "x")]), Err(Effect::Nothing));
    assert_eq!(meter(&[("region", "us"), ("method", "GET")]), Err(Effect::Nothing));
    let get = meter(&[("region", "eu"), ("method", "GET")]);
    assert_eq!(get.as_deref(), Ok("4/s fixed-window"));
}

#[test]
fn values_have_buckets_of_their_own_unless_they_share_a_threshold() {
    let shop = domains(SHOP);
    let key = |entries: &[(&str, &str)]| charge(&shop, entries).unwrap().0;
    assert_eq!(key(&[("account", "alice")]), "envoy/shop:account=alice");
    assert_eq!(key(&[("account", "test-7")]), "envoy/shop:account=test-7");
    assert_eq!(key(&[("file", "docs/a")]), "envoy/shop:file=docs/%2A");
    assert_eq!(key(&[("file", "docs/a")]), key(&[("file", "docs/b/c")]));
    let nested = key(&[("file", "docs/a"), ("file", "old/b")]);
    assert_eq!(nested, "envoy/shop:file=docs/%2A:file=old/b");
    let long = "x".repeat(10_000);
    assert!(key(&[("account", &long)]).len() < 80);
}

#[test]
fn units_are_as_long_as_in_the_reference() {
    let days = |unit: Unit| unit.period().as_micros() / 86_400_000_000;
    assert_eq!((days(Unit::Week), days(Unit::Month), days(Unit::Year)), (7, 30, 365));
    for (number, name) in [
        (1, "second"),
        (2, "minute"),
        (3, "hour"),
        (4, "day"),
        (5, "month"),
        (6, "year"),
        (7, "week"),
    ] {
        let unit = Unit::of_number(number).unwrap();
        assert_eq!((unit.name(), unit.number()), (name, number));
        assert_eq!(Unit::of_name(&name.to_uppercase()), Some(unit));
    }
    assert_eq!(Unit::of_number(0), None);
    assert_eq!(Unit::of_name("unknown"), None);
}

#[test]
fn modes_become_enforcement() {
    let text = "
domain: shop
descriptors:
  - {key: a, shadow_mode: yes, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}, metadata: {tier: {left: 1.5, on: true}}}
  - {key: c, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: d, rate_limit: {unlimited: true}}
  - {key: e, rate_limit: {unit: day, requests_per_unit: 0}}
";
    let shop = domains(text);
    let entries = ["a", "b", "c", "d"].map(|key| [(key, "1")]);
    let request: Vec<_> = entries.iter().map(|entries| take(entries)).collect();
    let charges = shop.resolve("shop", &request).unwrap();
    let enforcement: Vec<_> =
        charges.set.charges().iter().map(|charge| charge.enforcement).collect();
    assert_eq!(enforcement, [Enforcement::Shadow, Enforcement::AnyOf(0), Enforcement::AnyOf(0)]);
    let effects: Vec<_> = charges.matches.iter().map(|found| found.effect).collect();
    assert_eq!(
        effects,
        [Effect::Charge(0), Effect::Charge(1), Effect::Charge(2), Effect::Unlimited]
    );
    assert!(!charges.is_refused());
    let metadata = charges.matches[1].limit.as_ref().unwrap().metadata.clone().unwrap();
    assert_eq!(serde_json::to_string(&metadata).unwrap(), r#"{"tier":{"left":1.5,"on":true}}"#);

    // Quota mode: refused when all of them are exhausted, and not before.
    let store = MemoryStore::new();
    let quotas = shop.resolve("shop", &request[1..3]).unwrap().set;
    let one = shop.resolve("shop", &request[1..2]).unwrap().set;
    assert_eq!(store.take_set(&one).verdict(), Verdict::Allow);
    assert_eq!(store.take_set(&quotas).verdict(), Verdict::Allow);
    assert_eq!(store.take_set(&quotas).verdict(), Verdict::Deny);

    // A limit of zero refuses without asking.
    let banned = shop.resolve("shop", &[take(&[("e", "1")])]).unwrap();
    assert_eq!(banned.matches[0].effect, Effect::Refuse);
    assert!(banned.is_refused() && banned.set.is_empty());
}

#[test]
fn a_limit_stands_in_for_those_it_replaces() {
    let text = "
domain: shop
descriptors:
  - {key: a, rate_limit: {name: small, unit: day, requests_per_unit: 1}}
  - {key: b, rate_limit: {name: large, unit: day, requests_per_unit: 9, replaces: [{name: small}]}}
  - {key: c, rate_limit: {unlimited: true, replaces: [{name: large}]}}
";
    let shop = domains(text);
    let effects = |keys: &[&str]| -> Vec<Effect> {
        let entries: Vec<_> = keys.iter().map(|key| [(*key, "1")]).collect();
        let request: Vec<_> = entries.iter().map(|entries| take(entries)).collect();
        let charges = shop.resolve("shop", &request).unwrap();
        charges.matches.into_iter().map(|found| found.effect).collect()
    };
    assert_eq!(effects(&["a"]), [Effect::Charge(0)]);
    assert_eq!(effects(&["a", "b"]), [Effect::Replaced, Effect::Charge(0)]);
    assert_eq!(effects(&["b", "c"]), [Effect::Replaced, Effect::Unlimited]);
}

#[test]
fn the_limit_of_a_request_counts_instead_of_the_files() {
    let shop = domains(SHOP);
    let rate = Rate { requests_per_unit: 3, unit: Unit::Week };
    let entries = [("account", "vip")];
    let own = Descriptor { limit: Some(rate), ..take(&entries) };
    let charges = shop.resolve("shop", &[own]).unwrap();
    assert_eq!(charges.set.charges()[0].meter.to_string(), "3/7d fixed-window");
    assert_eq!(shop.resolve("nowhere", &[own]).unwrap().matches[0].effect, Effect::Nothing);
    // One that the chosen algorithm cannot meter is metered by windows.
    let logs = read(SHOP, Options::default().algorithm(Algorithm::SlidingLog)).unwrap().domains;
    let rate = Rate { requests_per_unit: u32::MAX, unit: Unit::Second };
    let own = Descriptor { limit: Some(rate), ..own };
    let charges = logs.resolve("shop", &[own]).unwrap();
    assert_eq!(charges.set.charges()[0].meter.to_string(), "4294967295/s fixed-window");
}

#[test]
fn metrics_name_values_only_where_the_file_says_so() {
    let shop = domains(SHOP);
    let metric = |entries: &[(&str, &str)]| {
        shop.resolve("shop", &[take(entries)]).unwrap().matches[0].metric.clone().unwrap()
    };
    assert_eq!(metric(&[("account", "alice")]), "shop.account");
    assert_eq!(metric(&[("account", "vip")]), "shop.account_vip");
    assert_eq!(metric(&[("account", "test-1")]), "shop.account_test*");
    assert_eq!(metric(&[("file", "docs/a")]), "shop.file_docs/*");
    assert_eq!(metric(&[("region", "eu"), ("method", "POST")]), "shop.region_eu.method_POST");
    assert_eq!(metric(&[("region", "eu"), ("method", "PUT")]), "shop.region_eu.method_PUT");
}

#[test]
fn any_other_algorithm_is_one_option_away() {
    for algorithm in Algorithm::ALL {
        let shop = read(SHOP, Options::default().algorithm(algorithm)).unwrap().domains;
        let (_, meter) = charge(&shop, &[("account", "alice")]).unwrap();
        assert_eq!(meter, format!("10/min {algorithm}"));
    }
    let huge =
        "{domain: d, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 200000}}]}";
    let report = read(huge, Options::default().algorithm(Algorithm::SlidingLog)).unwrap_err();
    assert!(report.to_string().contains("the largest limit that fits is 100000"), "{report}");
}

#[test]
fn several_domains_live_in_documents_and_files() {
    let two = "domain: a\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n---\ndomain: b\n";
    let three = Source::new("c.yaml", "domain: c");
    let read = Domains::read([Source::new("ab.yaml", two), three], Options::default());
    let read = read.unwrap().domains;
    assert_eq!(read.names().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(read.limits().len(), 1);
    let again = Source::new("a.yaml", two);
    let merged = Options::default().merge_domains();
    let extra = Source::new("b.yaml", "domain: a\ndescriptors: [{key: l}]");
    assert!(Domains::read([again.clone(), extra.clone()], merged).is_ok());
    assert!(Domains::read([again, extra], Options::default()).is_err());
}

#[test]
fn a_directory_is_read_whole() {
    let folder = std::env::temp_dir().join(format!("tollgate-{}-envoy", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for (name, text) in
        [("b.yml", "domain: b"), ("a.yaml", "domain: a"), (".c.yaml", "domain: c"), ("d.txt", "?")]
    {
        fs::write(folder.join(name), text).unwrap();
    }
    let read = Domains::load(&folder, Options::default());
    let names: Vec<String> = read.unwrap().domains.names().map(str::to_owned).collect();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn anchors_and_merges_are_followed() {
    let text = "
domain: shop
descriptors:
  - &base
    key: a
    rate_limit: &limit {unit: day, requests_per_unit: 3}
  - <<: *base
    key: b
  - key: c
    rate_limit: {<<: *limit, requests_per_unit: 4}
";
    let shop = domains(text);
    let meter = |key| charge(&shop, &[(key, "1")]).unwrap().1;
    assert_eq!([meter("b"), meter("c")], ["3/day fixed-window", "4/day fixed-window"]);
}

#[test]
fn the_way_down_can_be_explained() {
    let shop = domains(SHOP);
    let (steps, limit) = shop.explain("shop", &[("region", "eu"), ("method", "GET")]);
    let ways: Vec<_> = steps.into_iter().map(|step| step.via).collect();
    assert_eq!(ways, [Via::Value, Via::Key]);
    assert_eq!(limit.unwrap().path, "shop.region_eu.method");
    let (steps, limit) = shop.explain("shop", &[("account", "tester"), ("x", "y")]);
    let ways: Vec<_> = steps.into_iter().map(|step| step.via).collect();
    assert_eq!(ways, [Via::Pattern("test*".into()), Via::Nothing]);
    assert_eq!(limit, None);
}

#[test]
fn a_known_key_at_the_wrong_level_is_a_warning_as_the_reference_passes_it_over() {
    let loaded =
        read("{domain: d, name: x, descriptors: [{key: k, unit: day}]}", Options::default());
    assert_eq!(loaded.unwrap().warnings.counts(), (0, 2));
}

#[test]
fn what_the_reference_refuses_is_refused_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/envoy_bad");
    let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    assert!(files.len() > 10);
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let source = Source::new(name, fs::read_to_string(&path).unwrap());
        let said = Domains::read([source], Options::default()).expect_err(name).to_string();
        let expected = folder.join(format!("{name}.txt"));
        if std::env::var_os("BLESS").is_some() {
            fs::write(&expected, &said).unwrap();
        }
        assert_eq!(said, fs::read_to_string(&expected).unwrap(), "{name}");
    }
}

#[test]
fn a_converted_file_is_right_and_decides_alike() {
    use tollgate::{Costs, Subject};
    let shop = domains(SHOP);
    let text = shop.to_toml();
    let loaded =
        Loader::new().load_text(Source::new("converted.toml", text.as_str()), Format::Toml);
    let policy = loaded.unwrap_or_else(|report| panic!("{report}\n{text}")).settings.policy;
    for entries in [
        &[("account", "alice")][..],
        &[("account", "vip")],
        &[("account", "test-1")],
        &[("file", "docs/a")],
        &[("region", "eu"), ("method", "GET")],
    ] {
        let subject: Subject<'_> = entries.iter().copied().collect();
        let resolved = policy.resolve(&subject, &Costs::default());
        let charges = resolved.charges().unwrap().set().charges();
        let meters: Vec<String> = charges.iter().map(|charge| charge.meter.to_string()).collect();
        assert_eq!(meters, [charge(&shop, entries).unwrap().1], "{entries:?}\n{text}");
    }
    let both = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}, \
                {key: a, value: v*, rate_limit: {unit: day, requests_per_unit: 2}}, \
                {key: a, value: vip, rate_limit: {unit: day, requests_per_unit: 3}}, \
                {key: b, value: bad, rate_limit: {unit: day, requests_per_unit: 0}}]";
    let text = domains(both).to_toml();
    let loaded = Loader::new().load_text(Source::new("both.toml", text.as_str()), Format::Toml);
    let both = loaded.unwrap_or_else(|report| panic!("{report}\n{text}")).settings.policy;
    for (value, limit) in [("x", 1), ("very", 2), ("vip", 3)] {
        let resolved = both.resolve(&Subject::new().with("a", value), &Costs::default());
        assert_eq!(resolved.charges().unwrap().set().charges()[0].meter.limit(), limit, "{value}");
    }
    assert_eq!(both.denylist().len(), 1);
    let staff = Subject::new().with("account", "staff");
    let resolved = policy.resolve(&staff, &Costs::default());
    assert_eq!(resolved.charges().unwrap().set().charges()[0].meter.limit(), u64::from(u32::MAX));
}
