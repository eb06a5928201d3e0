//! What passes around the edge of a window: the five algorithms side by side.
//!
//! The limit is 60 a minute. A client that knows where the edge is sends ten requests a second for
//! fifteen seconds before it and fifteen seconds after it. A fixed window lets twice the limit pass
//! within those thirty seconds; no other does.

use tollgate::{Algorithm, Cost, ManualClock, MemoryStore, Meter, Micros};

/// Requests in a second, and seconds on either side of the edge.
const PER_SECOND: u64 = 10;
const SIDE: u64 = 15;

/// How many pass in each second from `SIDE` before the edge to `SIDE` after it.
fn passed(meter: Meter) -> Vec<u64> {
    // Minutes begin at multiples of sixty seconds since the epoch.
    let clock = ManualClock::at_secs(60_000_000 - SIDE);
    let store = MemoryStore::with_clock(clock.clone());
    let one = || {
        let allowed = store.take("client", meter, Cost::ONE).is_allowed();
        clock.advance(Micros::from_millis(1_000 / PER_SECOND));
        u64::from(allowed)
    };
    (0..2 * SIDE).map(|_| (0..PER_SECOND).map(|_| one()).sum()).collect()
}

/// A second as a character: the more passed, the taller.
fn bar(passed: u64) -> char {
    const BARS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    BARS[(passed * 8).div_ceil(PER_SECOND) as usize]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("60 a minute, asked for 10 times a second around the edge of a minute\n");
    println!("{:15} {:^15} {:^15}  passed in 30 s", "", "before", "after");
    let mut totals = Vec::new();
    for algorithm in Algorithm::ALL {
        let passed = passed(Meter::new("60/min".parse()?, algorithm)?);
        let chart = |seconds: &[u64]| seconds.iter().map(|&count| bar(count)).collect::<String>();
        let (before, after) = passed.split_at(passed.len() / 2);
        let (before, after) = (chart(before), chart(after));
        let total: u64 = passed.iter().sum();
        println!("{algorithm:15} {before}|{after}  {total}");
        totals.push((algorithm, total));
    }
    println!(
        "\nThe buckets give their burst (60) and what drains meanwhile (one a second); the leaky"
    );
    println!("one also holds each request until its turn, so that they go on at one a second.");

    for (algorithm, total) in totals {
        match algorithm {
            Algorithm::FixedWindow => assert_eq!(total, 120, "twice the limit"),
            Algorithm::SlidingLog => assert_eq!(total, 60, "never more than the limit"),
            Algorithm::SlidingWindow => assert!(total <= 75, "two counters let {total} pass"),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => assert_eq!(total, 60 + 29),
        }
    }
    Ok(())
}
