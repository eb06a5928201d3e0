//! Policies through the public interface: what a request is charged, and what is refused to compile.

use tollgate::policy::{Because, Place, PolicyBuilder, Source};
use tollgate::{
    Algorithm, Charge, ChargeSet, Cost, Costs, Enforcement, Missing, Override, Policy, Quota,
    Resolution, Rule, Subject,
};

fn build(builder: PolicyBuilder) -> Policy {
    builder.build().unwrap_or_else(|errors| panic!("{errors}"))
}

fn subject<'a>(values: &[(&'a str, &'a str)]) -> Subject<'a> {
    values.iter().copied().collect()
}

fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap()
}

fn charges(policy: &Policy, values: &[(&str, &str)]) -> Vec<Charge<'static>> {
    match policy.resolve(&subject(values), &Costs::default()) {
        Resolution::Charges(charges) => charges.set().charges().to_vec(),
        other => panic!("expected charges, found {other:?}"),
    }
}

fn keys(policy: &Policy, values: &[(&str, &str)]) -> Vec<String> {
    let charges = charges(policy, values);
    charges.iter().map(|charge| charge.key.to_string()).collect()
}

fn limits(policy: &Policy, values: &[(&str, &str)]) -> Vec<u64> {
    let charges = charges(policy, values);
    charges.iter().map(|charge| charge.meter.limit()).collect()
}

fn errors(builder: PolicyBuilder) -> Vec<String> {
    let errors = builder.build().expect_err("this should not compile");
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_rule_applies_when_all_its_conditions_hold() {
    let policy = build(Policy::builder().rule(Rule::new("all").quota("9/s")).rule(
        Rule::new("login").when("method", "POST").when("route", "/auth/*").by("ip").quota("5/15m"),
    ));
    let post = [("method", "POST"), ("route", "/auth/login"), ("ip", "::1")];
    assert_eq!(keys(&policy, &post), ["all", "login:ip=%3A%3A1"]);
    for other in [
        [("method", "GET"), ("route", "/auth/login"), ("ip", "::1")],
        [("method", "POST"), ("route", "/api"), ("ip", "::1")],
        // No value is no match, not even of a pattern that matches everything else.
        [("method", "POST"), ("path", "/auth/login"), ("ip", "::1")],
    ] {
        assert_eq!(keys(&policy, &other), ["all"]);
    }
    let any = build(Policy::builder().rule(Rule::new("r").when("user", "*").quota("1/s")));
    assert_eq!(keys(&any, &[("user", "")]), ["r"]);
    assert!(keys(&any, &[]).is_empty());
}

#[test]
fn every_charge_knows_its_rule() {
    let policy = build(
        Policy::builder()
            .rule(Rule::new("a").when("x", "1").quota("9/s"))
            .rule(Rule::new("b").by("x").quota("9/s; 99/min"))
            .rule(Rule::new("c").quota("9/s").shadow()),
    );
    let resolution = policy.resolve(&subject(&[("x", "2")]), &Costs::default());
    let charges = resolution.charges().unwrap();
    assert_eq!(charges.rules().collect::<Vec<_>>(), [1, 1, 2]);
    let enforcements: Vec<_> = charges.set().charges().iter().map(|c| c.enforcement).collect();
    let enforce = Enforcement::Enforce;
    assert_eq!(enforcements, [enforce, enforce, Enforcement::Shadow]);
}

#[test]
fn several_quotas_of_a_rule_share_a_key_and_differ_in_period() {
    let quotas = [Quota::per_second(10).unwrap(), Quota::per_day(1_000).unwrap()];
    for rule in
        [Rule::new("r").by("ip").quota("10/s; 1000/day"), Rule::new("r").by("ip").quota(quotas)]
    {
        let policy = build(Policy::builder().rule(rule));
        let charges = charges(&policy, &[("ip", "a")]);
        assert_eq!(charges.len(), 2);
        assert_eq!(charges[0].key, charges[1].key);
        assert_eq!([charges[0].meter.quota(), charges[1].meter.quota()], quotas);
    }
}

#[test]
fn tiers_go_by_value_then_default_then_the_strictest() {
    let tiers = [("paid", "1000/min"), ("free", "100/day"), ("trial", "1/s")];
    let plain = Rule::new("plan").by("tenant").tier("plan", tiers);
    let with_default = plain.clone().tier("plan", tiers.into_iter().chain([("default", "7/day")]));
    let with_quota = plain.clone().quota("8/day");
    for (rule, unknown) in [(plain, 100), (with_default, 7), (with_quota, 8)] {
        let policy = build(Policy::builder().rule(rule));
        let limit = |plan| limits(&policy, &[("tenant", "t"), ("plan", plan)])[0];
        assert_eq!((limit("paid"), limit("free"), limit("trial")), (1_000, 100, 1));
        assert_eq!(limit("gold"), unknown);
        assert_eq!(limits(&policy, &[("tenant", "t")]), [unknown]);
    }
}

#[test]
fn a_changed_tier_of_the_same_period_keeps_the_bucket() {
    let tiers = [("free", "100/day"), ("paid", "1000/day")];
    let policy = build(Policy::builder().rule(Rule::new("plan").by("tenant").tier("plan", tiers)));
    let free = charges(&policy, &[("tenant", "t"), ("plan", "free")]);
    let paid = charges(&policy, &[("tenant", "t"), ("plan", "paid")]);
    assert_eq!(free[0].key, paid[0].key);
    assert_eq!(free[0].meter.period(), paid[0].meter.period());
}

#[test]
fn the_first_matching_override_stands_in_for_quota_and_tiers() {
    let policy = build(
        Policy::builder()
            .rule(Rule::new("other").quota("1/s"))
            .rule(Rule::new("plan").by("tenant").tier("plan", [("free", "100/day")]))
            .overriding(Override::new("plan", "5/day").when("tenant", "acme").when("region", "eu"))
            .overriding(Override::new("plan", "6/day").when("tenant", "acme*"))
            .overriding(Override::new("plan", "7/day; 1/s").when("tenant", "acme*")),
    );
    let of = |values: &[(&str, &str)]| limits(&policy, values)[1..].to_vec();
    assert_eq!(of(&[("tenant", "acme"), ("region", "eu")]), [5]);
    assert_eq!(of(&[("tenant", "acme"), ("region", "us")]), [6]);
    assert_eq!(of(&[("tenant", "acme")]), [6]);
    assert_eq!(of(&[("tenant", "other"), ("region", "eu")]), [100]);
}

#[test]
fn a_margin_lowers_every_quota_of_the_rule() {
    let policy = build(
        Policy::builder()
            .rule(
                Rule::new("vendor")
                    .by("account")
                    .tier("plan", [("big", "1000/min burst 200"), ("default", "1/min")])
                    .algorithm(Algorithm::TokenBucket)
                    .margin(5),
            )
            .overriding(Override::new("vendor", "33/min").when("account", "x")),
    );
    let charge = &charges(&policy, &[("account", "a"), ("plan", "big")])[0];
    assert_eq!((charge.meter.limit(), charge.meter.capacity()), (950, 190));
    // Never below one unit.
    assert_eq!(limits(&policy, &[("account", "a")]), [1]);
    assert_eq!(limits(&policy, &[("account", "x")]), [31]);
}

#[test]
fn a_rule_charges_in_its_own_unit() {
    let policy = build(
        Policy::builder()
            .rule(Rule::new("calls").quota("60/min"))
            .rule(Rule::new("tokens").unit("tokens").quota("100000/min")),
    );
    let costs_of = |costs: &Costs<'_>| -> Vec<(String, Charge<'static>)> {
        let resolution = policy.resolve(&Subject::new(), costs);
        let charges = resolution.charges().unwrap().set().charges().to_vec();
        charges.into_iter().map(|c| (c.key.to_string(), c)).collect()
    };
    let taken = |costs: &Costs<'_>| -> Vec<(String, u64)> {
        let charges = costs_of(costs).into_iter();
        charges
            .map(|(key, charge)| match charge.op {
                tollgate::Op::Take(ask) => (key, ask.max.get()),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(taken(&Costs::default()), [("calls".into(), 1)]);
    let both = Costs::requests(cost(2)).with("tokens", cost(1_200)).with("cents", cost(3));
    assert_eq!(taken(&both), [("calls".into(), 2), ("tokens".into(), 1_200)]);
    assert_eq!(taken(&Costs::only("tokens", cost(5))), [("tokens".into(), 5)]);
}

#[test]
fn a_missing_axis_is_skipped_shared_or_denied() {
    let rule = Rule::new("r").by("tenant").by("user").quota("1/s");
    let with = |missing| {
        let rule = rule.clone().when("route", "/x").missing(missing);
        build(Policy::builder().rule(rule))
    };
    let values = [("tenant", "t"), ("route", "/x")];
    assert!(keys(&with(Missing::Skip), &values).is_empty());
    assert_eq!(keys(&with(Missing::Share), &values), ["r:tenant=t:user"]);
    let deny = with(Missing::Deny);
    let resolution = deny.resolve(&subject(&values), &Costs::default());
    assert_eq!(resolution, Resolution::MissingAxis { rule: 0, axis: 1 });
    // A rule that would not have applied anyway refuses nobody.
    assert!(keys(&deny, &[("tenant", "t"), ("route", "/y")]).is_empty());
    let elsewhere = deny.resolve(&subject(&values), &Costs::only("tokens", Cost::ONE));
    assert!(elsewhere.charges().unwrap().set().is_empty());
    // Nor does one that only watches.
    let shadow = build(Policy::builder().rule(rule.clone().missing(Missing::Deny).shadow()));
    assert!(keys(&shadow, &values).is_empty());
}

#[test]
fn a_shared_bucket_is_nobodys_own() {
    let rule = Rule::new("r").by("user").quota("1/s").missing(Missing::Share);
    let policy = build(Policy::builder().rule(rule));
    let shared = keys(&policy, &[]);
    for value in ["", "user", ":", "r", "-"] {
        assert_ne!(keys(&policy, &[("user", value)]), shared, "{value:?}");
    }
}

#[test]
fn lists_hold_values_and_networks() {
    let policy = build(
        Policy::builder()
            .allow("user", "admin-*")
            .allow_network("ip", "10.0.0.0/8")
            .allow_network("ip", "2001:db8::/32")
            .deny("user", "admin-mallory")
            .deny_network("ip", "10.6.6.0/24")
            .rule(Rule::new("all").quota("1/s")),
    );
    let of = |axis, value| policy.resolve(&Subject::new().with(axis, value), &Costs::default());
    for (axis, value, entry) in [
        ("user", "admin-alice", 0),
        ("ip", "10.1.2.3", 1),
        ("ip", "::ffff:10.1.2.3", 1),
        ("ip", "2001:db8:1::5", 2),
    ] {
        assert_eq!(of(axis, value), Resolution::Allowlisted { entry }, "{value}");
    }
    for (axis, value, entry) in [("user", "admin-mallory", 0), ("ip", "10.6.6.6", 1)] {
        assert_eq!(of(axis, value), Resolution::Denylisted { entry }, "{value}");
    }
    for (axis, value) in [
        ("user", "bob"),
        ("ip", "11.0.0.1"),
        ("ip", "::1"),
        ("ip", "not an address"),
        ("ip", "10.1.2.3:80"),
        ("ip", ""),
        ("forwarded", "10.1.2.3"),
    ] {
        assert!(of(axis, value).charges().is_some(), "{value}");
    }
}

#[test]
fn networks_of_several_axes_each_look_at_their_own() {
    let policy = build(
        Policy::builder()
            .allow_network("ip", "10.0.0.0/8")
            .allow_network("peer", "10.0.0.0/8")
            .allow_network("ip", "192.0.2.0/24"),
    );
    let entry = |ip, peer| {
        let subject = Subject::new().with("ip", ip).with("peer", peer);
        match policy.resolve(&subject, &Costs::default()) {
            Resolution::Allowlisted { entry } => Some(entry),
            _ => None,
        }
    };
    assert_eq!(entry("10.0.0.1", "::1"), Some(0));
    assert_eq!(entry("192.0.2.1", "10.0.0.1"), Some(1));
    assert_eq!(entry("192.0.2.1", "::1"), Some(2));
    assert_eq!(entry("::1", "192.0.2.1"), None);
}

#[test]
fn private_and_long_values_stand_in_keys_as_digests() {
    let policy = |salt: &str| {
        let hashed = Rule::new("h").by("email").quota("1/s").hash();
        let plain = Rule::new("p").by("path").quota("1/s");
        build(Policy::builder().salt(salt).rule(hashed).rule(plain))
    };
    let alice = [("email", "alice@example.com")];
    // printf %s alice@example.com | sha256sum
    assert_eq!(keys(&policy(""), &alice), ["h:email=#ff8d9819fc0e12bf0d24892e45987e24"]);
    let salted = keys(&policy("pepper"), &alice);
    assert_ne!(salted, keys(&policy(""), &alice));
    assert_ne!(salted, keys(&policy("salt"), &alice));
    assert_eq!(salted, keys(&policy("pepper"), &alice), "the same in every process");

    let (short, long) = ("x".repeat(128), "x".repeat(129));
    let key = |value: &str| keys(&policy(""), &[("path", value)])[0].clone();
    assert_eq!(key(&short), format!("p:path={short}"));
    assert_eq!(key(&long).len(), "p:path=#".len() + 32);
    // Spelling out the digest of a long value does not reach its bucket.
    let digest = key(&long)["p:path=".len()..].to_owned();
    assert_ne!(key(&digest), key(&long));
}

#[test]
fn no_two_subjects_share_a_bucket() {
    let rule = Rule::new("r").by("a").by("b").quota("1/s").missing(Missing::Share);
    let policy = build(Policy::builder().rule(rule));
    let values = ["", "1", "1:b=2", ":b", "=", "%3A", ":", "#", "{1}", "é", "b", "*"];
    let options = || [None].into_iter().chain(values.into_iter().map(Some));
    let mut seen = std::collections::HashSet::new();
    for a in options() {
        for b in options() {
            let pairs = [("a", a), ("b", b)].into_iter();
            let subject = pairs.filter_map(|(axis, value)| Some((axis, value?))).collect();
            let resolution = policy.resolve(&subject, &Costs::default());
            let key = resolution.charges().unwrap().set().charges()[0].key.to_string();
            assert!(seen.insert(key), "{a:?} {b:?}");
        }
    }
}

#[test]
fn everything_wrong_is_reported_at_once_with_its_place() {
    let long = "n".repeat(129);
    let found = Policy::builder()
        .rule(Rule::new("").quota("1/s"))
        .rule(Rule::new("a").by("ip").by("ip").quota("100/fortnight"))
        .rule(Rule::new("a").quota("1/s burst 5"))
        .rule(Rule::new("b"))
        .rule(Rule::new("c").quota("1/s").margin(100).unit(""))
        .rule(
            Rule::new("d").tier("plan", [("free", "x"), ("free", "1/s"), ("paid", "1/s burst 2")]),
        )
        .rule(Rule::new("e").tier("", Vec::<(String, Quota)>::new()))
        .rule(Rule::new("f").tier("plan", [("default", "1/s")]).quota("2/s"))
        .rule(Rule::new("g").when("route", r"\d").when("", "x").quota("1/s"))
        .rule(Rule::new("h").any_of(1).quota("1/s; 5/min"))
        .rule(Rule::new("i").quota([Quota::per_day(1).unwrap(), Quota::per_day(2).unwrap()]))
        .rule(Rule::new("j").quota(Vec::new()))
        .rule(Rule::new("k").by("user").colocate("tenant").quota("1/s"))
        .rule(Rule::new(long.as_str()).by("x\n").quota("1/s"))
        .overriding(Override::new("z", "1/s").when("x", "y"))
        .overriding(Override::new("c", "1/s burst 9"))
        .allow_network("ip", "10.0.0.1/8")
        .deny("user", "")
        .build()
        .unwrap_err();
    let text: Vec<String> = found.iter().map(ToString::to_string).collect();
    let expected = [
        "rule 1: the name is empty",
        "rule \"a\": axis \"ip\" is named twice",
        "rule \"a\": quota \"100/fortnight\": unknown unit of time",
        "rule \"a\": rule 2 has this name already",
        "rule \"a\": quota \"1/s burst 5\" does not fit sliding-window: only buckets have a burst; write \"1/s\"",
        "rule \"b\": there is no quota; write one such as \"100/min\"",
        "rule \"c\": the unit is empty",
        "rule \"c\": a margin of 100 per cent leaves nothing; write 0 to 99",
        "rule \"d\": tier \"free\" is named twice",
        "rule \"d\": quota \"x\"",
        "rule \"d\": quota \"1/s burst 2\" does not fit",
        "rule \"e\": the axis of the tiers is empty",
        "rule \"e\": the table of tiers is empty",
        "rule \"f\": both a quota and a tier \"default\"",
        "rule \"g\": axis \"route\": in pattern",
        "rule \"g\": the axis in \"when\" is empty",
        "rule \"h\": a rule of a group has one quota",
        "rule \"i\": two quotas have the same period (day)",
        "rule \"j\": there is no quota",
        "rule \"k\": axis \"tenant\" is not one of \"by\"",
        "the name is longer than 128 bytes",
        "the axis in \"by\" has a control character",
        "override 1 of rule \"z\": there is no rule of this name; write one of",
        "override 2 of rule \"c\": without a condition",
        "override 2 of rule \"c\": quota \"1/s burst 9\" does not fit",
        "allowlist entry 1: axis \"ip\": \"10.0.0.1/8\" has bits set beyond its prefix; write \"10.0.0.0/8\"",
        "deny-list entry 1: axis \"user\": the pattern is empty",
    ];
    for line in expected {
        assert!(text.iter().any(|error| error.contains(line)), "no {line:?} in {text:#?}");
    }
    assert_eq!(text.len(), expected.len(), "{text:#?}");
    assert_eq!(found.to_string().lines().count(), text.len());
    let quota = found.iter().find(|error| error.to_string().contains("fortnight")).unwrap();
    assert_eq!(quota.field(), "quota");
    assert_eq!(*quota.place(), Place::Rule { index: 1, name: "a".into() });
}

fn many(count: usize, rule: impl Fn(usize) -> Rule) -> PolicyBuilder {
    (0..count).map(rule).fold(Policy::builder(), PolicyBuilder::rule)
}

#[test]
fn more_rules_than_a_set_holds_need_conditions_that_exclude_each_other() {
    let name = |index: usize| format!("r{index}");
    let plain = |index: usize| Rule::new(name(index)).quota("1/s");
    assert!(many(ChargeSet::MAX, plain).build().is_ok());
    let found = errors(many(ChargeSet::MAX + 1, plain));
    assert!(found[0].contains("meet 17 quotas at once, and at most 16"), "{found:?}");
    let twofold = |index: usize| Rule::new(name(index)).quota("1/s; 1/min");
    assert!(errors(many(9, twofold))[0].contains("18 quotas"));
    let overridden =
        many(ChargeSet::MAX, plain).overriding(Override::new("r3", "1/s; 1/min").when("x", "y"));
    assert!(errors(overridden)[0].contains("17 quotas"));

    let by_route = |index: usize| plain(index).when("route", format!("/{index}"));
    assert!(many(1_000, by_route).build().is_ok());
    let by_prefix = |index: usize| plain(index).when("route", format!("/{index:03}/*"));
    assert!(many(500, by_prefix).build().is_ok());
    let nested = |index: usize| plain(index).when("route", format!("{}*", "/".repeat(index)));
    assert!(many(16, nested).build().is_ok());
    assert!(errors(many(17, nested))[0].contains("17 quotas"));
    // Exclusive on one axis within each value of another.
    let grid = |index: usize| {
        let rule = plain(index).when("route", format!("/{}", index / 20));
        rule.when("method", format!("m{}", index % 20))
    };
    assert!(many(400, grid).build().is_ok());
    // A literal and the patterns that match it go together.
    let mixed = |index: usize| match index {
        0 => plain(index).when("route", "/a"),
        _ => plain(index).when("route", "/*").when("route", format!("/{}*", ["a", "b"][index % 2])),
    };
    assert!(many(31, mixed).build().is_ok());
    assert!(errors(many(34, mixed))[0].contains("17 quotas"));
}

#[test]
fn what_the_bound_lets_through_always_fits_a_set() {
    // Eight rules per prefix and eight for all: the worst subject meets exactly sixteen.
    let rule = |index: usize| {
        let rule = Rule::new(format!("r{index}")).quota("1/s");
        match index % 3 {
            0 => rule,
            group => rule.when("route", ["", "/a/*", "/b/*"][group]),
        }
    };
    let policy = build(many(24, rule));
    for (route, expected) in [("/a/x", 16), ("/b/", 16), ("/c", 8)] {
        assert_eq!(keys(&policy, &[("route", route)]).len(), expected);
    }
}

/// Random conditions over few values, so that rules overlap in every way. A policy that compiles
/// never meets a subject with more charges than a set holds: `explain`, which has no such limit,
/// finds as many as `resolve`.
#[test]
fn no_subject_ever_exceeds_the_bound() {
    const PATTERNS: [&str; 9] = ["a", "ab", "b", "a*", "ab*", "*b", "*", "?", "a?"];
    const VALUES: [&str; 6] = ["a", "ab", "b", "abb", "c", ""];
    const AXES: [&str; 3] = ["x", "y", "z"];
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut compiled, mut refused, mut fullest) = (0, 0, 0);
    for _ in 0..400 {
        let mut policy = Policy::builder();
        for index in 0..18 + random(30) {
            let quota = ["1/s", "1/s; 9/min"][usize::from(random(8) == 0)];
            let mut rule = Rule::new(format!("r{index}")).quota(quota);
            for _ in 0..1 + random(3) {
                rule = rule.when(AXES[random(3)], PATTERNS[random(PATTERNS.len())]);
            }
            policy = policy.rule(rule);
        }
        let Ok(policy) = policy.build() else {
            refused += 1;
            continue;
        };
        compiled += 1;
        for number in 0..VALUES.len().pow(3) {
            let value = |place: u32| VALUES[number / VALUES.len().pow(place) % VALUES.len()];
            let subject = AXES.into_iter().zip([value(0), value(1), value(2)]).collect();
            let explained = policy.explain(&subject, &Costs::default()).rules.into_iter();
            let expected: usize = explained
                .map(|explained| match explained.because {
                    Because::Applies { charges, .. } => charges.len(),
                    _ => 0,
                })
                .sum();
            let resolution = policy.resolve(&subject, &Costs::default());
            assert_eq!(resolution.charges().unwrap().set().len(), expected);
            fullest = fullest.max(expected);
        }
    }
    // Or the test would say nothing.
    assert!(compiled > 50 && refused > 50, "{compiled} compiled, {refused} refused");
    assert!(fullest >= 15, "{fullest}");
}

#[test]
fn explain_agrees_with_resolve_and_says_why_not() {
    let policy = build(
        Policy::builder()
            .version(7)
            .allow("user", "root")
            .rule(Rule::new("tokens").unit("tokens").quota("1/s"))
            .rule(Rule::new("route").when("route", "/api/*").quota("1/s"))
            .rule(Rule::new("tenant").by("tenant").quota("1/s").missing(Missing::Deny))
            .rule(Rule::new("ip").by("ip").quota("1/s"))
            .rule(Rule::new("plan").by("user").tier("plan", [("free", "2/s")]))
            .overriding(Override::new("plan", "3/s").when("user", "u")),
    );
    assert_eq!(policy.version(), 7);
    let subject = subject(&[("user", "root"), ("route", "/"), ("plan", "free")]);
    let explanation = policy.explain(&subject, &Costs::default());
    assert_eq!(explanation.allowlisted.unwrap().axis(), "user");
    assert!(explanation.denylisted.is_none());
    let lines: Vec<String> = explanation.rules.iter().map(|e| e.because.to_string()).collect();
    assert_eq!(
        lines,
        [
            "does not apply: the request costs no tokens",
            "does not apply: route is \"/\", not \"/api/*\"",
            "refuses: there is no tenant",
            "does not apply: there is no ip to count by",
            "applies: 2/s sliding-window to plan:user=root (tier \"free\")",
        ]
    );
    let subject = Subject::new().with("user", "u").with("tenant", "t");
    let explanation = policy.explain(&subject, &Costs::default());
    let applied: Vec<Charge<'_>> = explanation
        .rules
        .into_iter()
        .filter_map(|explained| match explained.because {
            Because::Applies { charges, source } => Some((charges, source)),
            _ => None,
        })
        .inspect(|(charges, source)| {
            let overridden = charges[0].key.scope() == b"plan";
            let expected = if overridden { Source::Override(0) } else { Source::Rule };
            assert_eq!(*source, expected);
        })
        .flat_map(|(charges, _)| charges)
        .collect();
    let resolution = policy.resolve(&subject, &Costs::default());
    assert_eq!(applied, resolution.charges().unwrap().set().charges());
}

#[test]
fn of_many_overrides_the_first_that_matches_counts() {
    let exception = |limit: u64, tenant: String| {
        Override::new("plan", format!("{limit}/day")).when("tenant", tenant)
    };
    let rule = Policy::builder().rule(Rule::new("plan").by("tenant").quota("1/day"));
    let policy = (0..1_000).fold(rule, |builder, number| match number {
        500 => builder.overriding(exception(7, "t-5*".into())),
        number => builder.overriding(exception(1_000 + number, format!("t-{number}"))),
    });
    let policy = build(policy);
    for (tenant, expected) in
        [("t-3", 1_003), ("t-57", 1_057), ("t-500", 7), ("t-501", 7), ("t-601", 1_601), ("x", 1)]
    {
        assert_eq!(limits(&policy, &[("tenant", tenant)]), [expected], "{tenant}");
    }
}

#[test]
fn a_rule_alone_charges_what_it_charges_beside_a_list_nobody_is_on() {
    let rules = [
        Rule::new("all").quota("9/min"),
        Rule::new("ip").by("ip").quota("9/min"),
        Rule::new("shared").by("ip").quota("9/min").missing(Missing::Share),
        Rule::new("strict").by("ip").quota("9/min").missing(Missing::Deny),
        Rule::new("shadow").by("ip").quota("9/min").shadow(),
        Rule::new("near:far").by("ip").quota("9/min").colocate("ip"),
        Rule::new("tokens").by("ip").quota("9/min").unit("tokens"),
        Rule::new("hashed").by("ip").quota("9/min").hash(),
        Rule::new("both").by("ip").by("user").quota("9/min; 90/day"),
    ];
    let long = "1".repeat(200);
    let values = [None, Some(""), Some("192.0.2.7"), Some("a:b=c %"), Some(long.as_str())];
    let costs = [Costs::default(), Costs::none(), Costs::only("tokens", cost(3))];
    for rule in rules {
        let alone = build(Policy::builder().rule(rule.clone()));
        let listed = build(Policy::builder().rule(rule.clone()).allow("nobody", "x"));
        for (value, costs) in values.iter().flat_map(|value| costs.iter().map(move |c| (value, c)))
        {
            let subject: Subject<'_> = value.iter().map(|value| ("ip", *value)).collect();
            let (alone, listed) = (alone.resolve(&subject, costs), listed.resolve(&subject, costs));
            assert_eq!(alone, listed, "{} of {value:?} at {costs:?}", rule.name());
        }
    }
}

#[test]
fn one_list_is_enough_to_be_asked_before_the_only_rule() {
    let rule = || Policy::builder().rule(Rule::new("ip").by("ip").quota("9/min"));
    let subject = Subject::new().with("ip", "192.0.2.7");
    let resolve = |policy| build(policy).resolve(&subject, &Costs::default());
    let allowed = resolve(rule().allow("ip", "192.0.2.7"));
    assert_eq!(allowed, Resolution::Allowlisted { entry: 0 });
    let denied = resolve(rule().deny("ip", "192.0.2.7"));
    assert_eq!(denied, Resolution::Denylisted { entry: 0 });
}
