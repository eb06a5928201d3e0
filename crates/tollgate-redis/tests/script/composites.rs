//! Random traces of whole sets: mixed algorithms, ops and enforcements over a few buckets.

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::{
    Algorithm, Ask, Charge, ChargeSet, Cost, Enforcement, MAX_EXACT, Meter, Op, Quota, Retry,
    Timestamp,
};
use tollgate_testkit::trace::{Amount, Pause, amount, pause, quotas};

use crate::differential::{Pure, Question};

/// What happens to a few buckets.
#[derive(Clone, Debug)]
pub(crate) struct Composite {
    start: u64,
    buckets: Vec<(Algorithm, Vec<Quota>)>,
    steps: Vec<Event>,
}

#[derive(Clone, Debug)]
enum Event {
    Ask(Vec<Wish>),
    Pause(Pause),
    Back(Pause),
}

/// One charge of a set.
#[derive(Clone, Copy, Debug)]
struct Wish {
    bucket: usize,
    quota: usize,
    what: What,
    amount: Amount,
    enforcement: Enforcement,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Take,
    Lease(Amount),
    Peek,
    Refund(usize),
    Reset,
}

pub(crate) fn composites() -> impl Strategy<Value = Composite> {
    let start = prop_oneof![
        1 => 0..10_000_000_u64,
        4 => 1_700_000_000_000_000..1_700_100_000_000_000_u64,
    ];
    let algorithm = prop::sample::select(Algorithm::ALL.to_vec());
    let bucket = algorithm
        .prop_flat_map(|algorithm| quotas(algorithm, true).prop_map(move |q| (algorithm, q)));
    let step = prop_oneof![
        8 => vec(wish(), 1..5).prop_map(Event::Ask),
        3 => pause().prop_map(Event::Pause),
        1 => pause().prop_map(Event::Back),
    ];
    (start, vec(bucket, 2..5), vec(step, 10..30)).prop_map(|(start, buckets, steps)| Composite {
        start,
        buckets,
        steps,
    })
}

fn wish() -> impl Strategy<Value = Wish> {
    let what = prop_oneof![
        10 => Just(What::Take),
        1 => amount().prop_map(What::Lease),
        2 => Just(What::Peek),
        2 => (0..4_usize).prop_map(What::Refund),
        1 => Just(What::Reset),
    ];
    let enforcement = prop_oneof![
        5 => Just(Enforcement::Enforce),
        2 => Just(Enforcement::Shadow),
        3 => (0..2_u8).prop_map(Enforcement::AnyOf),
    ];
    // Mostly one of two quotas, so that limits change now and then.
    let quota = prop_oneof![6 => Just(0_usize), 1 => 0..4_usize];
    (0..4_usize, quota, what, amount(), enforcement).prop_map(
        |(bucket, quota, what, amount, enforcement)| Wish {
            bucket,
            quota,
            what,
            amount,
            enforcement,
        },
    )
}

/// Where a walk along a composite trace is.
struct Way<'c> {
    composite: &'c Composite,
    prefix: &'c str,
    pure: Pure,
    now: u64,
    promised: u64,
    // The latest instant it may come to.
    latest: u64,
    // When something was asked, oldest first.
    asked: Vec<u64>,
}

impl Composite {
    /// The script counts fixed windows modulo 2^26, for a key is gone long before so many have
    /// passed. Here the clock is not the server's, so keys stay, and far fewer may pass.
    fn latest(&self) -> u64 {
        let fixed =
            self.buckets.iter().filter(|(algorithm, _)| *algorithm == Algorithm::FixedWindow);
        let shortest = fixed.map(|(_, quotas)| quotas[0].period().as_micros()).min();
        let most = shortest.map_or(u64::MAX, |period| period << 24);
        self.start.saturating_add(most).min(Timestamp::MAX.as_micros() / 2)
    }

    /// The questions it comes to, of buckets whose keys begin with `prefix`.
    pub(crate) fn walk(&self, prefix: &str) -> Vec<Question> {
        let mut way = Way {
            composite: self,
            prefix,
            pure: Pure::new(),
            now: self.start,
            promised: self.start,
            latest: self.latest(),
            asked: Vec::new(),
        };
        let mut questions = Vec::new();
        for step in &self.steps {
            match step {
                Event::Ask(wishes) => questions.push(way.ask(wishes)),
                Event::Pause(pause) => {
                    way.now = (way.now + way.span(*pause)).min(way.latest);
                }
                Event::Back(pause) => {
                    let earliest = way.pure.earliest(way.now).max(self.start);
                    way.now = way.now.saturating_sub(way.span(*pause)).max(earliest);
                }
            }
        }
        questions
    }
}

impl Way<'_> {
    fn ask(&mut self, wishes: &[Wish]) -> Question {
        let mut set = ChargeSet::new();
        for wish in wishes {
            // Two wishes about one bucket that do not go together: the first counts.
            let _ = set.push(self.charge(wish));
        }
        let now = Timestamp::from_micros(self.now);
        let decision = self.pure.decide(&set, now);
        self.asked.push(self.now);
        if let Retry::After(wait) = decision.retry() {
            self.promised = self.now + wait.get();
        }
        Question { now, set, expected: Some(decision) }
    }

    fn bucket(&self, bucket: usize, quota: usize) -> (String, Meter) {
        let index = bucket % self.composite.buckets.len();
        let (algorithm, quotas) = &self.composite.buckets[index];
        let quota = quotas[quota % quotas.len()];
        let meter = Meter::new(quota, *algorithm).expect("a quota that fits");
        (format!("{} {index}", self.prefix), meter)
    }

    fn charge(&self, wish: &Wish) -> Charge<'static> {
        let (key, meter) = self.bucket(wish.bucket, wish.quota);
        let cost = |amount| self.cost(&key, &meter, amount);
        let op = match wish.what {
            What::Take => Op::Take(Ask::exactly(cost(wish.amount))),
            What::Lease(other) => {
                let (one, two) = (cost(wish.amount), cost(other));
                Op::Take(Ask { min: one.min(two), max: one.max(two) })
            }
            What::Peek => Op::Peek(cost(wish.amount)),
            What::Refund(ago) => {
                let at = self.asked.iter().rev().copied().nth(ago).unwrap_or(self.now);
                Op::Refund { cost: cost(wish.amount), at: Timestamp::from_micros(at) }
            }
            What::Reset => Op::Reset,
        };
        Charge::new(key, meter, op).enforced(wish.enforcement)
    }

    fn cost(&self, key: &str, meter: &Meter, amount: Amount) -> Cost {
        let now = Timestamp::from_micros(self.now);
        let left = || self.pure.state(key, meter).standing(meter, now).remaining;
        let units = match amount {
            Amount::Units(units) => units,
            Amount::Share(share) => (u128::from(meter.capacity()) * u128::from(share) / 256) as u64,
            Amount::Left => left(),
            Amount::Beyond => left() + 1,
            Amount::TooMuch => meter.capacity() + 1,
        };
        Cost::new(units.clamp(1, MAX_EXACT)).expect("at least one")
    }

    /// A span in terms of the first bucket.
    fn span(&self, pause: Pause) -> u64 {
        let (key, meter) = self.bucket(0, 0);
        let period = meter.period().as_micros();
        let reset = || {
            let now = Timestamp::from_micros(self.now);
            self.pure.state(&key, &meter).standing(&meter, now).reset.get()
        };
        match pause {
            Pause::Micros(micros) => micros,
            Pause::Share(share) => period / 256 * share,
            Pause::Promised(early) => self.promised.saturating_sub(self.now).saturating_sub(early),
            Pause::Edge(early) => (period - self.now % period) - early,
            Pause::Clear(early) => reset().saturating_sub(early),
        }
    }
}
