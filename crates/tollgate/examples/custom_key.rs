//! Buckets by whatever a program knows of a request: here, of an IPv6 client its /64, and the route.
//!
//! A rule's axes are names, and their values come from code, so a key can be made of anything. Rules
//! spell keys themselves and escape what could be mistaken for a separator; a private value is kept
//! out of them by `hash`.

use std::net::IpAddr;

use tollgate::{Costs, Gate, MemoryStore, Policy, Rule, Subject};

/// What a client is known by: an address, or the network a provider hands to one customer.
fn client(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = Policy::builder()
        .rule(Rule::new("per-client").by("client").by("route").quota("2/min"))
        .rule(Rule::new("per-account").by("email").quota("3/min").hash())
        .build()?;
    let gate = Gate::new(policy, MemoryStore::new());

    let mut verdicts = Vec::new();
    for address in ["2001:db8:1:2::1", "2001:db8:1:2::beef", "2001:db8:1:2:3::3", "192.0.2.7"] {
        let client = client(address.parse()?);
        let subject = Subject::new()
            .with("client", &client)
            .with("route", "/login")
            .with("email", "ann@example.com");
        let admission = gate.admit_now(&subject, &Costs::default());
        let by = admission.rule().map_or("", Rule::name);
        println!("{address:18} as {client:22} {:5} ({by} is nearest)", admission.verdict());
        verdicts.push(admission.is_allowed());
    }
    // The third address is another, and the same customer.
    assert_eq!(verdicts, [true, true, false, true]);

    let subject = Subject::new().with("client", "a:b=c").with("route", "/").with("email", "x");
    let resolution = gate.policy().resolve(&subject, &Costs::default());
    let charges = resolution.charges().ok_or("no list holds the subject")?;
    let keys: Vec<_> = charges.set().charges().iter().map(|c| c.key.to_string()).collect();
    println!("keys: {}", keys.join("  "));
    assert_eq!(keys[0], "per-client:client=a%3Ab%3Dc:route=/");
    assert!(keys[1].starts_with("per-account:email=#"));
    Ok(())
}
