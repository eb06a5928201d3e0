//! Who is measured: Tollgate, its peers, and a floor nobody can go below.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use governor::DefaultKeyedRateLimiter;
use tollgate::{Algorithm, Clock, Cost, MemoryStore, Meter, Micros, Period, Quota, SystemClock};

use crate::workload::{Access, HOT_STRETCH, Mood, Part, Rate, Spread, Workload};

/// Keys handed to `take_many` at once.
const BATCH: usize = 64;
const _: () = assert!(HOT_STRETCH >= BATCH, "batches would be smaller than they are said to be");

/// Mutexes of the plain map.
const SHARDS: usize = 64;

/// A limiter under measurement, shared by all threads.
pub(crate) trait Contender: Sync {
    /// Takes the filling from a key nobody has asked for yet; whether it was granted.
    fn fill(&self, access: &Access) -> bool;

    /// Asks for one unit; whether it was granted. Only this is used of an answer, of all alike.
    ///
    /// Part of the loop, of all alike: what calling a function of the benchmark's costs is nobody's.
    fn take(&self, access: &Access) -> bool;

    /// Makes every request of `part` and counts what was granted.
    fn run(&self, part: Part<'_>) -> u64 {
        let mut granted = 0;
        for _ in 0..part.rounds {
            for access in part.accesses {
                granted += u64::from(self.take(access));
            }
        }
        granted
    }
}

/// All there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One reading of the clock and one compare-and-swap in an array indexed by the key's number: no
    /// hashing, no lookup, no answer beyond yes or no.
    Floor,
    /// Tollgate's memory store, one decision at a time.
    Tollgate(Algorithm),
    /// Tollgate's memory store, [`BATCH`] token buckets at a time.
    TollgateMany,
    /// governor, keyed, in a `DashMap`, on its default clock.
    Governor,
    /// What people write: sharded mutexes over the standard hash map.
    MutexMap,
}

impl Kind {
    /// Those that run `workload`.
    pub(crate) fn on(workload: Workload) -> Vec<Self> {
        let mut kinds = vec![
            Self::Floor,
            Self::Tollgate(Algorithm::TokenBucket),
            Self::Governor,
            Self::MutexMap,
            Self::TollgateMany,
        ];
        if workload.mood == Mood::Allow && workload.spread != Spread::Zipf {
            let others = Algorithm::ALL.into_iter();
            let others = others.filter(|algorithm| *algorithm != Algorithm::TokenBucket);
            kinds.extend(others.map(Self::Tollgate));
        }
        kinds
    }

    /// Those whose memory is weighed.
    pub(crate) const WEIGHED: [Self; 3] =
        [Self::Tollgate(Algorithm::TokenBucket), Self::Governor, Self::MutexMap];

    /// The name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Floor => "clock+CAS floor",
            Self::Tollgate(_) => "tollgate",
            Self::TollgateMany => "tollgate take_many",
            Self::Governor => "governor",
            Self::MutexMap => "mutex-map",
        }
    }

    /// The algorithm's name in reports.
    pub(crate) const fn algorithm(self) -> &'static str {
        match self {
            Self::Tollgate(algorithm) => algorithm.name(),
            Self::TollgateMany | Self::MutexMap => Algorithm::TokenBucket.name(),
            Self::Floor | Self::Governor => "gcra",
        }
    }

    /// A fresh one.
    pub(crate) fn build(self, workload: Workload) -> Box<dyn Contender> {
        let rate = workload.mood.rate();
        match self {
            Self::Floor => Box::new(Floor::new(rate, workload.spread.keys())),
            Self::Tollgate(algorithm) => Box::new(Tollgate::new(algorithm, workload)),
            Self::TollgateMany => {
                Box::new(TollgateMany(Tollgate::new(Algorithm::TokenBucket, workload)))
            }
            Self::Governor => Box::new(Governor::new(rate)),
            Self::MutexMap => Box::new(MutexMap::new(rate)),
        }
    }
}

/// Tollgate, one decision at a time.
struct Tollgate {
    store: MemoryStore,
    meter: Meter,
    fill: Cost,
}

impl Tollgate {
    fn new(algorithm: Algorithm, workload: Workload) -> Self {
        let (quota, fill) = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => bucket(workload.mood.rate()),
            window => (generous_window(window, workload.spread), Cost::ONE),
        };
        let store = match algorithm {
            // Logs remember each request, and none shall be forgotten while it counts.
            Algorithm::SlidingLog => MemoryStore::builder().max_log_entries(1 << 26).build(),
            _ => MemoryStore::new(),
        };
        let meter = Meter::new(quota, algorithm).expect("the quota fits the algorithm");
        Self { store, meter, fill }
    }
}

/// A bucket's quota at `rate`, and what filling takes.
fn bucket(rate: Rate) -> (Quota, Cost) {
    let interval = Micros::new(rate.interval.as_micros() as u64);
    let quota = Period::new(interval).and_then(|period| Quota::new(1, period));
    let quota = quota.and_then(|quota| quota.with_burst(rate.burst.into()));
    let fill = Cost::new(rate.fill.into());
    quota.zip(fill).expect("nothing in a rate is zero")
}

/// A window's quota that grants everything and outlasts the measurement.
fn generous_window(algorithm: Algorithm, spread: Spread) -> Quota {
    let quota = match (algorithm, spread) {
        // A log holds at most 100,000 requests, which a hot key makes in a few milliseconds.
        (Algorithm::SlidingLog, Spread::Hot) => "100000/ms",
        (Algorithm::SlidingLog, _) => "1000/5s",
        _ => "90000000/h",
    };
    quota.parse().expect("a quota in Tollgate's grammar")
}

impl Contender for Tollgate {
    fn fill(&self, access: &Access) -> bool {
        let Self { store, meter, fill } = self;
        let decision = store.take(access.key.as_str(), meter, *fill);
        decision.is_allowed()
    }

    #[inline(always)]
    fn take(&self, access: &Access) -> bool {
        let Self { store, meter, .. } = self;
        black_box(store.take(access.key.as_str(), meter, Cost::ONE).is_allowed())
    }
}

/// Tollgate, many decisions at a time.
struct TollgateMany(Tollgate);

impl Contender for TollgateMany {
    fn fill(&self, access: &Access) -> bool {
        self.0.fill(access)
    }

    fn take(&self, access: &Access) -> bool {
        self.0.take(access)
    }

    fn run(&self, part: Part<'_>) -> u64 {
        let Tollgate { store, meter, .. } = &self.0;
        let mut granted = 0;
        for _ in 0..part.rounds {
            for batch in part.accesses.chunks(BATCH) {
                let keys = batch.iter().map(|access| access.key.as_str());
                let decisions = black_box(store.take_many(keys, meter, Cost::ONE));
                granted += decisions.iter().filter(|one| one.is_allowed()).count() as u64;
            }
        }
        granted
    }
}

/// governor.
struct Governor {
    limiter: DefaultKeyedRateLimiter<String>,
    fill: NonZeroU32,
}

impl Governor {
    fn new(rate: Rate) -> Self {
        let nonzero = |units| NonZeroU32::new(units).expect("nothing in a rate is zero");
        let quota = governor::Quota::with_period(rate.interval);
        let quota = quota.expect("nothing in a rate is zero");
        Self {
            limiter: governor::RateLimiter::dashmap(quota.allow_burst(nonzero(rate.burst))),
            fill: nonzero(rate.fill),
        }
    }
}

impl Contender for Governor {
    fn fill(&self, access: &Access) -> bool {
        let answer = self.limiter.check_key_n(&access.key, self.fill);
        matches!(answer, Ok(Ok(())))
    }

    #[inline(always)]
    fn take(&self, access: &Access) -> bool {
        black_box(self.limiter.check_key(&access.key).is_ok())
    }
}

/// A token bucket as people write it, in whole nanoseconds instead of fractions of tokens.
struct Bucket {
    // The time it would take to gather the tokens that are there.
    credit: u64,
    last: Instant,
}

/// Sharded mutexes over the standard hash map.
struct MutexMap {
    shards: Vec<Mutex<HashMap<String, Bucket>>>,
    hasher: RandomState,
    interval: u64,
    capacity: u64,
    fill: u32,
}

impl MutexMap {
    fn new(rate: Rate) -> Self {
        let interval = rate.interval.as_nanos() as u64;
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            interval,
            capacity: interval * u64::from(rate.burst),
            fill: rate.fill,
        }
    }

    #[inline]
    fn charge(&self, key: &str, units: u32) -> bool {
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        let mut map = self.shards[shard].lock().expect("nobody panics");
        let now = Instant::now();
        if let Some(bucket) = map.get_mut(key) {
            return self.charge_bucket(bucket, units, now);
        }
        let mut bucket = Bucket { credit: self.capacity, last: now };
        let granted = self.charge_bucket(&mut bucket, units, now);
        map.insert(key.to_owned(), bucket);
        granted
    }

    #[inline]
    fn charge_bucket(&self, bucket: &mut Bucket, units: u32, now: Instant) -> bool {
        let gathered = now.duration_since(bucket.last).as_nanos() as u64;
        bucket.credit = self.capacity.min(bucket.credit + gathered);
        bucket.last = now;
        let price = self.interval * u64::from(units);
        let granted = bucket.credit >= price;
        if granted {
            bucket.credit -= price;
        }
        granted
    }
}

impl Contender for MutexMap {
    fn fill(&self, access: &Access) -> bool {
        self.charge(&access.key, self.fill)
    }

    #[inline(always)]
    fn take(&self, access: &Access) -> bool {
        black_box(self.charge(&access.key, 1))
    }
}

/// GCRA on an array.
struct Floor {
    // When the bucket of the key with this number is full again, in µs.
    full_at: Vec<AtomicU64>,
    interval: u64,
    capacity: u64,
    fill: u32,
}

impl Floor {
    fn new(rate: Rate, keys: usize) -> Self {
        let interval = rate.interval.as_micros() as u64;
        Self {
            full_at: (0..keys).map(|_| AtomicU64::new(0)).collect(),
            interval,
            capacity: interval * u64::from(rate.burst),
            fill: rate.fill,
        }
    }

    #[inline]
    fn charge(&self, access: &Access, units: u32) -> bool {
        let now = SystemClock.now().as_micros();
        let cell = &self.full_at[access.index as usize];
        let mut seen = cell.load(Ordering::Relaxed);
        loop {
            let next = seen.max(now) + self.interval * u64::from(units);
            if next - now > self.capacity {
                return false;
            }
            match cell.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => seen = changed,
            }
        }
    }
}

impl Contender for Floor {
    fn fill(&self, access: &Access) -> bool {
        self.charge(access, self.fill)
    }

    #[inline(always)]
    fn take(&self, access: &Access) -> bool {
        black_box(self.charge(access, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is granted to a new key: by filling, then by so many requests.
    fn granted(kind: Kind, workload: Workload, requests: usize) -> (bool, u64) {
        let contender = kind.build(workload);
        let accesses: Vec<_> = (0..requests).map(|_| Access::of(0)).collect();
        let part = Part { accesses: &accesses, rounds: 2 };
        (contender.fill(&Access::of(0)), contender.run(part))
    }

    #[test]
    fn all_contenders_grant_the_same() {
        for workload in Workload::ALL {
            for kind in Kind::on(workload) {
                let expected = match workload.mood {
                    Mood::Allow => (true, 200),
                    Mood::Deny => (true, 0),
                };
                let found = granted(kind, workload, 100);
                assert_eq!(found, expected, "{kind:?} on {workload}");
            }
        }
    }
}
