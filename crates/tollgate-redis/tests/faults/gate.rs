//! Through the gate: while Redis is down each rule's fallback decides, and says so.

use std::time::Duration;

use tollgate::{Costs, Fallback, Gate, Policy, Provenance, Rule, StoreErrorKind, Subject, Verdict};
use tollgate_testkit::redis::Server;

use crate::load::{served, store};

fn policy() -> Policy {
    let rule = |name: &str, fallback| {
        Rule::new(name).when("route", name).by("user").quota("2/day").on_store_failure(fallback)
    };
    let rules = [
        rule("open", Fallback::Allow),
        rule("closed", Fallback::Deny),
        rule("local", Fallback::Local),
    ];
    rules.into_iter().fold(Policy::builder(), |policy, rule| policy.rule(rule)).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verdicts_follow_each_rules_fallback() {
    let mut server = Server::start();
    let store = store(&server.url());
    served(&store, "key").await;
    let gate = Gate::new(policy(), store.clone());
    let admit = async |route: &str, user: &str| {
        let subject = Subject::new().with("route", route).with("user", user);
        let admission = gate.admit(&subject, &Costs::default()).await;
        (admission.verdict(), admission.provenance(), admission.store_error().map(|e| e.kind()))
    };
    let by_store = (Verdict::Allow, Provenance::Store, None);
    assert_eq!(admit("open", "before").await, by_store);

    server.kill();
    // Until the loss is noticed a decision may be late instead.
    while admit("open", "probe").await.2 != Some(StoreErrorKind::Unavailable) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let down = Some(StoreErrorKind::Unavailable);
    for _ in 0..4 {
        assert_eq!(admit("open", "a").await, (Verdict::Allow, Provenance::Fallback, down));
        assert_eq!(admit("closed", "a").await, (Verdict::Deny, Provenance::Fallback, down));
    }
    let mut local = Vec::new();
    for _ in 0..4 {
        let (verdict, provenance, error) = admit("local", "a").await;
        assert_eq!((provenance, error), (Provenance::Fallback, down));
        local.push(verdict.is_allow());
    }
    assert_eq!(local, [true, true, false, false]);

    server.restart();
    served(&store, "key").await;
    while admit("open", "b").await.1 != Provenance::Store {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(admit("closed", "a").await.1, Provenance::Store);
}
