//! Which keys are asked for, in which order, and how much they may.

use std::fmt;
use std::time::Duration;

/// Distinct keys where there are many.
pub(crate) const MANY_KEYS: usize = 1_000_000;

/// How much steeper than 1/rank popularity falls.
const ZIPF_EXPONENT: f64 = 1.1;

/// Requests of the one hot key that lie in memory; the rest of the work goes over them again. So few
/// that their keys stay in the nearest cache, where a key is that has just been parsed.
pub(crate) const HOT_STRETCH: usize = 64;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// One key, asked for by everybody.
    Hot,
    /// A million keys, each as likely as the other.
    Uniform,
    /// A million keys, the one of rank *r* asked for in proportion to *r*^-1.1.
    Zipf,
}

/// Whether what is asked for is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// The quota is so generous that everything is.
    Allow,
    /// One per key and hour is, and the filling has taken it.
    Deny,
}

/// A quota in the terms every contender knows, and what filling takes from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// The time one unit takes to come back.
    pub(crate) interval: Duration,
    /// Units that may be taken at once.
    pub(crate) burst: u32,
    /// Units taken from each key by the filling.
    pub(crate) fill: u32,
}

/// What is measured: a spread in a mood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    /// How keys are chosen.
    pub(crate) spread: Spread,
    /// Whether they are granted.
    pub(crate) mood: Mood,
}

impl Workload {
    /// All six.
    pub(crate) const ALL: [Self; 6] = {
        use Mood::{Allow, Deny};
        use Spread::{Hot, Uniform, Zipf};
        [
            Self::new(Hot, Allow),
            Self::new(Hot, Deny),
            Self::new(Uniform, Allow),
            Self::new(Uniform, Deny),
            Self::new(Zipf, Allow),
            Self::new(Zipf, Deny),
        ]
    };

    const fn new(spread: Spread, mood: Mood) -> Self {
        Self { spread, mood }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = match self.spread {
            Spread::Hot => "hot",
            Spread::Uniform => "uniform",
            Spread::Zipf => "zipf",
        };
        let mood = match self.mood {
            Mood::Allow => "mostly-allow",
            Mood::Deny => "mostly-deny",
        };
        write!(f, "{spread} {mood}")
    }
}

impl Spread {
    /// Distinct keys.
    pub(crate) const fn keys(self) -> usize {
        match self {
            Self::Hot => 1,
            Self::Uniform | Self::Zipf => MANY_KEYS,
        }
    }
}

impl Mood {
    /// The quota of buckets in this mood.
    ///
    /// A bucket that has refilled is as good as none, and a store may forget it. So that all hold
    /// the same keys until the end, filling takes ten minutes' worth of units.
    pub(crate) const fn rate(self) -> Rate {
        match self {
            Self::Allow => {
                Rate { interval: Duration::from_millis(1), burst: 1_000_000_000, fill: 600_000 }
            }
            Self::Deny => Rate { interval: Duration::from_secs(3_600), burst: 1, fill: 1 },
        }
    }
}

/// One request: who asks.
#[derive(Debug)]
pub(crate) struct Access {
    /// The key's number.
    pub(crate) index: u32,
    /// The key.
    pub(crate) key: String,
}

impl Access {
    /// The request of the key with this number, in the form such keys have in practice.
    pub(crate) fn of(index: usize) -> Self {
        Self {
            index: u32::try_from(index).expect("keys are numbered in 32 bits"),
            key: format!("tenant:{}:user:{}", index % 97, 100_000 + index),
        }
    }
}

/// A precomputed sequence of requests.
///
/// They lie in memory in the order they are made.
pub(crate) struct Sequence {
    // Each key once.
    keys: Vec<Access>,
    accesses: Vec<Access>,
    rounds: usize,
}

impl Sequence {
    /// `decisions` requests of `spread`, the same every time.
    pub(crate) fn new(spread: Spread, decisions: usize) -> Self {
        let mut random = Random(0x746f_6c6c_6761_7465);
        let keys = spread.keys();
        let (accesses, rounds) = match spread {
            Spread::Hot => {
                let accesses = (0..HOT_STRETCH).map(|_| Access::of(0)).collect();
                (accesses, decisions.div_ceil(HOT_STRETCH))
            }
            Spread::Uniform => {
                let uniform = (0..decisions).map(|_| Access::of(random.below(keys)));
                (uniform.collect(), 1)
            }
            Spread::Zipf => {
                let zipf = Zipf::new(keys, ZIPF_EXPONENT);
                let ranks = (0..decisions).map(|_| zipf.rank(random.fraction()));
                (ranks.map(|rank| Access::of(scatter(rank, keys))).collect(), 1)
            }
        };
        Self { keys: (0..keys).map(Access::of).collect(), accesses, rounds }
    }

    /// One request of each key, to fill a store with.
    pub(crate) fn keys(&self) -> &[Access] {
        &self.keys
    }

    /// Requests in all.
    pub(crate) fn decisions(&self) -> usize {
        self.accesses.len() * self.rounds
    }

    /// The part of one of several threads: requests, and how often to go over them.
    pub(crate) fn part(&self, thread: usize, threads: usize) -> Part<'_> {
        let share = |all: usize, thread: usize| all * thread / threads;
        match self.rounds {
            1 => {
                let all = self.accesses.len();
                let accesses = &self.accesses[share(all, thread)..share(all, thread + 1)];
                Part { accesses, rounds: 1 }
            }
            rounds => Part {
                accesses: &self.accesses,
                rounds: share(rounds, thread + 1) - share(rounds, thread),
            },
        }
    }
}

/// One thread's part of a [`Sequence`].
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    /// Requests, in order.
    pub(crate) accesses: &'a [Access],
    /// How often to go over them.
    pub(crate) rounds: usize,
}

/// Spreads ranks over key numbers, so that popular keys are not neighbours.
fn scatter(rank: usize, keys: usize) -> usize {
    // A prime that does not divide the number of keys makes this a permutation.
    const PRIME: usize = 7_368_787;
    rank * PRIME % keys
}

/// Ranks in proportion to rank^-exponent, by looking up the cumulative share.
struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    fn new(ranks: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=ranks)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|share| *share /= sum);
        Self { cumulative }
    }

    /// The rank, from zero, at a fraction of the whole.
    fn rank(&self, fraction: f64) -> usize {
        let rank = self.cumulative.partition_point(|share| *share <= fraction);
        rank.min(self.cumulative.len() - 1)
    }
}

/// SplitMix64: small, and good enough to choose keys.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// From zero to just below one.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_ranks_come_in_proportion() {
        let zipf = Zipf::new(1_000, 1.1);
        let mut random = Random(1);
        let mut counts = vec![0u32; 1_000];
        for _ in 0..1_000_000 {
            counts[zipf.rank(random.fraction())] += 1;
        }
        for rank in [2usize, 5, 10, 50] {
            let expected = (rank as f64).powf(1.1);
            let found = f64::from(counts[0]) / f64::from(counts[rank - 1]);
            assert!((found / expected - 1.0).abs() < 0.1, "{rank}: {found}");
        }
    }

    #[test]
    fn scattering_loses_no_key() {
        let mut seen = vec![false; MANY_KEYS];
        (0..MANY_KEYS).for_each(|rank| seen[scatter(rank, MANY_KEYS)] = true);
        assert!(seen.into_iter().all(|seen| seen));
    }

    #[test]
    fn the_parts_of_threads_make_up_the_whole() {
        for spread in [Spread::Hot, Spread::Uniform] {
            let sequence = Sequence::new(spread, 10_001);
            for threads in 1..4 {
                let parts = (0..threads).map(|thread| sequence.part(thread, threads));
                let sum: usize = parts.map(|part| part.accesses.len() * part.rounds).sum();
                assert_eq!(sum, sequence.decisions());
            }
        }
    }
}
