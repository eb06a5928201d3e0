//! Testing code that is rate limited: time is driven, never slept.
//!
//! The code under test takes its store as an argument, so that a program hands it one on the system's
//! clock and a test one on a [`ManualClock`].

use tollgate::{Algorithm, Clock, Cost, ManualClock, MemoryStore, Meter, Micros, Retry};

/// The code under test: sends mails, at most three in any hour to one address.
struct Mailer<C> {
    store: MemoryStore<C>,
    meter: Meter,
    sent: Vec<String>,
}

impl<C: Clock> Mailer<C> {
    fn new(store: MemoryStore<C>) -> Result<Self, Box<dyn std::error::Error>> {
        let meter = Meter::new("3/h".parse()?, Algorithm::SlidingLog)?;
        Ok(Self { store, meter, sent: Vec::new() })
    }

    /// Sends, or says when it can.
    fn send(&mut self, to: &str) -> Result<(), Retry> {
        let decision = self.store.take(to, self.meter, Cost::ONE);
        if !decision.is_allowed() {
            return Err(decision.retry());
        }
        self.sent.push(to.to_owned());
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = ManualClock::at_secs(1_700_000_000);
    let mut mailer = Mailer::new(MemoryStore::with_clock(clock.clone()))?;

    // One mail every ten minutes: the fourth is one too many.
    for _ in 0..3 {
        assert_eq!(mailer.send("ann@example.com"), Ok(()));
        clock.advance(Micros::from_secs(600));
    }
    let refused = mailer.send("ann@example.com");
    println!("the fourth within the hour: {refused:?}");
    let Err(Retry::After(wait)) = refused else {
        panic!("the fourth mail went out, or never will");
    };
    // The first was sent half an hour ago, and counts for another half.
    assert_eq!(wait, Micros::from_secs(1_800));

    // The promise is exact: a microsecond before it the answer is still no, and then it is yes.
    clock.advance(Micros::new(wait.get() - 1));
    assert_eq!(mailer.send("ann@example.com"), Err(Retry::After(Micros::new(1))));
    clock.advance(Micros::new(1));
    assert_eq!(mailer.send("ann@example.com"), Ok(()));

    // Others were never concerned.
    assert_eq!(mailer.send("bob@example.com"), Ok(()));
    println!("sent at the promised instant, not before: {} mails in all", mailer.sent.len());
    assert_eq!(mailer.sent.len(), 5);
    Ok(())
}
