//! What every store must do: one function per guarantee of [`tollgate::store`].
//!
//! Each takes a [`Bench`], a store whose clock the test drives, and panics where the store breaks
//! the guarantee. They share nothing but the bench, so each wants a store of its own or at least
//! keys nobody else charges: a bench can put a prefix before every key.
//!
//! ```text
//! #[tokio::test]
//! async fn a_refusal_changes_nothing() {
//!     conformance::single::a_refusal_changes_nothing(&bench().await).await;
//! }
//! ```

use tollgate::{
    Algorithm, Charge, ChargeSet, Cost, Decision, Key, Meter, Micros, Op, Reading, Store, Timestamp,
};

pub mod composite;
pub mod ops;
pub mod promise;
pub mod single;

/// A clock a test can move.
pub trait Driven {
    /// Moves the clock to `now`, which may lie in the past.
    fn set(&self, now: Timestamp);
}

impl Driven for tollgate::ManualClock {
    fn set(&self, now: Timestamp) {
        self.set(now);
    }
}

/// A store on a driven clock.
pub struct Bench<S, D> {
    /// The store under test.
    pub store: S,
    clock: D,
    prefix: String,
}

/// When every test begins: the start of a window of a second, a minute, an hour and a day.
pub const START: Timestamp = Timestamp::from_micros(1_700_006_400_000_000);

impl<S: Store, D: Driven> Bench<S, D> {
    /// A bench at [`START`] whose keys all begin with `prefix`.
    pub fn new(store: S, clock: D, prefix: impl Into<String>) -> Self {
        clock.set(START);
        let prefix = prefix.into();
        Self { store, clock, prefix }
    }

    /// Moves the clock to so long after [`START`].
    pub fn at(&self, since: Micros) {
        self.clock.set(START + since);
    }

    /// A key of this bench.
    pub fn key(&self, name: &str) -> Key<'static> {
        format!("{}{name}", self.prefix).into()
    }

    /// A charge that takes `cost` units, enforced.
    pub fn charge(&self, name: &str, meter: Meter, cost: u64) -> Charge<'static> {
        Charge::take(self.key(name), meter, units(cost))
    }

    /// Decides one set.
    pub async fn decide(&self, set: &ChargeSet<'_>) -> Decision {
        let mut answers = self.decide_all(std::slice::from_ref(set)).await;
        assert_eq!(answers.len(), 1, "one answer per set");
        answers.remove(0)
    }

    /// Decides several sets.
    pub async fn decide_all(&self, sets: &[ChargeSet<'_>]) -> Vec<Decision> {
        let answers = self.store.decide(sets).await;
        assert_eq!(answers.len(), sets.len(), "one answer per set");
        let answers = answers.into_iter();
        answers.map(|answer| answer.expect("an answer")).collect()
    }

    /// Decides these charges as one set.
    pub async fn all(&self, charges: impl IntoIterator<Item = Charge<'static>>) -> Decision {
        self.decide(&set(charges)).await
    }

    /// Takes `cost` units from one bucket.
    pub async fn take(&self, name: &str, meter: Meter, cost: u64) -> Decision {
        self.all([self.charge(name, meter, cost)]).await
    }

    /// Puts one op to one bucket.
    pub async fn op(&self, name: &str, meter: Meter, op: Op) -> Decision {
        self.all([Charge::new(self.key(name), meter, op)]).await
    }

    /// What one bucket shows, untouched.
    pub async fn look(&self, name: &str, meter: Meter) -> Reading {
        let decision = self.op(name, meter, Op::Peek(Cost::ONE)).await;
        reading(&decision, 0)
    }

    /// Units that still fit into one bucket.
    pub async fn left(&self, name: &str, meter: Meter) -> u64 {
        self.look(name, meter).await.remaining
    }
}

/// A set of these charges.
pub fn set(charges: impl IntoIterator<Item = Charge<'static>>) -> ChargeSet<'static> {
    let mut set = ChargeSet::new();
    for charge in charges {
        set.push(charge).expect("charges that go together");
    }
    set
}

/// A quota metered by an algorithm.
pub fn meter(quota: &str, algorithm: Algorithm) -> Meter {
    let quota = quota.parse().expect("a quota");
    Meter::new(quota, algorithm).expect("a quota that fits")
}

/// So many units.
pub fn units(units: u64) -> Cost {
    Cost::new(units).expect("not zero")
}

/// The numbers of one outcome; a store always has them.
pub fn reading(decision: &Decision, index: usize) -> Reading {
    let reading = decision.outcomes()[index].reading;
    reading.expect("a store answers with numbers")
}
