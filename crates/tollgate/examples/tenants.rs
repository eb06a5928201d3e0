//! Per-tenant limits inside a global one, with tiers, an exception and an allowlist.
//!
//! A policy is data: rules say whom they are for and how much each may have. All rules that apply
//! are decided together, so the biggest tenant cannot eat up what is meant for everybody.

use tollgate::{
    Algorithm, Costs, Gate, ManualClock, MemoryStore, Micros, Override, Policy, Rule, Subject,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = Policy::builder()
        .allow_network("ip", "10.0.0.0/8")
        .rule(Rule::new("everybody").quota("100/min").algorithm(Algorithm::TokenBucket))
        .rule(
            Rule::new("plan")
                .by("tenant")
                .tier("plan", [("free", "5/min"), ("paid", "40/min")])
                .algorithm(Algorithm::TokenBucket),
        )
        .overriding(Override::new("plan", "70/min").when("tenant", "acme"))
        .build()?;
    let clock = ManualClock::at_secs(1_700_000_000);
    let gate = Gate::new(policy, MemoryStore::with_clock(clock.clone()));

    // Everybody asks 200 times at once.
    let burst = |tenant: &str, plan: &str, ip: &str| {
        let subject = Subject::new().with("tenant", tenant).with("plan", plan).with("ip", ip);
        let mut passed = 0;
        let mut refused_by = String::from("nobody");
        for _ in 0..200 {
            let admission = gate.admit_now(&subject, &Costs::default());
            match admission.is_allowed() {
                true => passed += 1,
                false => refused_by = admission.rule().map_or("", Rule::name).to_owned(),
            }
        }
        println!("{tenant:8} {plan:5} {ip:12} {passed:3} of 200 passed, refused by {refused_by}");
        (passed, refused_by)
    };
    let expect = |passed: u32, by: &str| (passed, by.to_owned());
    // Its own limit stops it, and the 195 refusals took nothing from the common one.
    assert_eq!(burst("startup", "free", "192.0.2.1"), expect(5, "plan"));
    // The exception, not the tier.
    assert_eq!(burst("acme", "paid", "192.0.2.2"), expect(70, "plan"));
    // 40 by its plan, of which the common limit has 25 left.
    assert_eq!(burst("globex", "paid", "192.0.2.3"), expect(25, "everybody"));
    // A plan nobody has heard of is treated as the strictest; here nothing is left anyway.
    assert_eq!(burst("hooli", "gold", "192.0.2.4"), expect(0, "everybody"));
    assert_eq!(burst("monitor", "free", "10.1.2.3"), expect(200, "nobody"));

    clock.advance(Micros::from_secs(30));
    println!("half a minute later");
    assert_eq!(burst("startup", "free", "192.0.2.1"), expect(2, "plan"));
    Ok(())
}
