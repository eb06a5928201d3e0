//! Several limits at once, all or nothing: 3 a minute for each user, 4 a minute for a route.
//!
//! Whatever refuses, the others are not charged for it: the user who is out of units takes nothing
//! from the route, and a full route takes nothing from the user.

use tollgate::{Algorithm, Charge, ChargeSet, Cost, ManualClock, MemoryStore, Meter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = MemoryStore::with_clock(ManualClock::at_secs(1_000_020));
    let per_user = Meter::new("3/min".parse()?, Algorithm::SlidingLog)?;
    let per_route = Meter::new("4/min".parse()?, Algorithm::TokenBucket)?;

    let mut log = Vec::new();
    for user in ["ann", "ann", "ann", "ann", "bob", "bob"] {
        let mut set = ChargeSet::new();
        set.push(Charge::take(user, per_user, Cost::ONE))?;
        set.push(Charge::take("/search", per_route, Cost::ONE))?;
        let decision = store.take_set(&set);

        let left: Vec<u64> = decision
            .outcomes()
            .iter()
            .filter_map(|outcome| outcome.reading)
            .map(|reading| reading.remaining)
            .collect();
        let binding = decision.binding().map_or("nobody", |index| [user, "/search"][index]);
        println!(
            "{user}: {:5}  left: {} of the user's, {} of the route's  (nearest: {binding})",
            decision.verdict(),
            left[0],
            left[1],
        );
        log.push((decision.is_allowed(), left[0], left[1]));
    }

    assert_eq!(
        log,
        [
            (true, 2, 3),
            (true, 1, 2),
            (true, 0, 1),
            // Ann is out of units, and the route keeps its last one …
            (false, 0, 1),
            // … for Bob.
            (true, 2, 0),
            // Now the route is full, and Bob keeps his two.
            (false, 2, 0),
        ]
    );
    Ok(())
}
