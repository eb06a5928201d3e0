//! A few refusals that are looked for together, read without a lock.
//!
//! The version is odd while somebody writes. Who reads looks at it before and after: if it is even and
//! the same, no word was half of one refusal and half of another. If it is not, somebody is writing,
//! and nothing is known: Redis is asked, as it is of everything that is not remembered. So refusing
//! what is remembered waits for nobody, and writes to nothing that others read.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::name::Name;

/// Refusals in a line.
pub(super) const WAYS: usize = 4;

/// One refusal, in words; instants are microseconds of the cache's own clock. All zeros is one that is
/// over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    pub(super) name: Name,
    /// It holds before this instant.
    pub(super) until: u64,
    /// When the answer came.
    pub(super) answered: u64,
    /// When Redis decided, by its own clock.
    pub(super) at: u64,
    pub(super) capacity: u64,
    pub(super) remaining: u64,
    /// What was left to wait when it was decided; [`NEVER`] for ever.
    pub(super) retry: u64,
    pub(super) reset: u64,
}

/// In place of a time to wait.
pub(super) const NEVER: u64 = u64::MAX;

const WORDS: usize = 9;

#[derive(Default)]
pub(super) struct Line {
    version: AtomicU64,
    places: [Place; WAYS],
    // Held by who writes, with the instant of the last clearing: a question sent before may have been
    // answered out of a state that is gone.
    cleared: Mutex<Option<u64>>,
}

#[derive(Default)]
struct Place([AtomicU64; WORDS]);

impl Line {
    /// The refusal of this name, if it holds at `now` and nobody is writing.
    #[inline(always)]
    pub(super) fn find(&self, name: Name, now: u64) -> Option<Denial> {
        let version = self.version.load(Ordering::Acquire);
        let denial = self.places.iter().find(|place| place.name() == name)?.read();
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (whole && now < denial.until).then_some(denial)
    }

    /// Adds the answer to a question sent at `sent`, unless something was cleared since. It takes the
    /// place of the one that ends first.
    pub(super) fn insert(&self, denial: Denial, sent: u64) {
        let cleared = self.lock();
        if cleared.is_some_and(|cleared| sent <= cleared) {
            return;
        }
        let same = self.places.iter().find(|place| place.name() == denial.name);
        let soonest = || self.places.iter().min_by_key(|place| place.read().until);
        if let Some(place) = same.or_else(soonest) {
            self.write(|| place.write(denial));
        }
    }

    /// Forgets at `now` what is `concerned`.
    pub(super) fn clear(&self, now: u64, concerned: impl Fn(Name) -> bool) {
        let mut cleared = self.lock();
        *cleared = Some(now);
        let places = self.places.iter().filter(|place| concerned(place.name()));
        self.write(|| places.for_each(|place| place.write(Denial::OVER)));
    }

    /// Writes, with the lock held.
    fn write(&self, write: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Nothing of what follows is seen without the odd version.
        fence(Ordering::Release);
        write();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Nothing panics while holding the lock, and what it guards is never half written.
    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        self.cleared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn name(&self) -> Name {
        Name { bucket: self.word(0), terms: self.word(1) }
    }

    #[inline(always)]
    fn read(&self) -> Denial {
        Denial {
            name: self.name(),
            until: self.word(2),
            answered: self.word(3),
            at: self.word(4),
            capacity: self.word(5),
            remaining: self.word(6),
            retry: self.word(7),
            reset: self.word(8),
        }
    }

    fn write(&self, denial: Denial) {
        for (word, value) in self.0.iter().zip(denial.words()) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Denial {
    const OVER: Self = Self {
        name: Name { bucket: 0, terms: 0 },
        until: 0,
        answered: 0,
        at: 0,
        capacity: 0,
        remaining: 0,
        retry: 0,
        reset: 0,
    };

    fn words(self) -> [u64; WORDS] {
        let Self { name, until, answered, at, capacity, remaining, retry, reset } = self;
        [name.bucket, name.terms, until, answered, at, capacity, remaining, retry, reset]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(number: u64, until: u64) -> Denial {
        let name = Name { bucket: number, terms: number };
        let numbers = number * 1_000;
        Denial {
            name,
            until,
            answered: numbers,
            at: numbers,
            capacity: numbers,
            remaining: numbers,
            retry: numbers,
            reset: numbers,
        }
    }

    #[test]
    fn it_holds_until_its_end_and_gives_way_to_the_newer() {
        let line = Line::default();
        for number in 1..=WAYS as u64 {
            line.insert(denial(number, 10 * number), 1);
        }
        assert_eq!(line.find(denial(1, 10).name, 9), Some(denial(1, 10)));
        assert_eq!(line.find(denial(1, 10).name, 10), None);
        line.insert(denial(9, 15), 1);
        assert_eq!(line.find(denial(1, 10).name, 9), None);
        assert_eq!(line.find(denial(9, 15).name, 14), Some(denial(9, 15)));
        assert_eq!(line.find(denial(2, 20).name, 14), Some(denial(2, 20)));
    }

    #[test]
    fn what_was_sent_before_a_clearing_is_not_learned() {
        let line = Line::default();
        line.insert(denial(1, 100), 1);
        line.insert(denial(2, 100), 1);
        line.clear(5, |name| name.bucket == 1);
        assert_eq!(line.find(denial(1, 100).name, 6), None);
        assert_eq!(line.find(denial(2, 100).name, 6), Some(denial(2, 100)));
        line.insert(denial(1, 100), 5);
        assert_eq!(line.find(denial(1, 100).name, 6), None);
        line.insert(denial(1, 100), 6);
        assert_eq!(line.find(denial(1, 100).name, 6), Some(denial(1, 100)));
    }

    /// While others write, a reader sees one refusal, the other or none, never some of each.
    #[test]
    fn nothing_is_read_half_written() {
        let line = Line::default();
        let name = Name { bucket: 7, terms: 7 };
        let versions = [1, 2].map(|number| Denial { name, ..denial(number, 100) });
        line.insert(versions[0], 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000 {
                    line.insert(versions[round % 2], 1);
                }
            });
            for _ in 0..20_000 {
                let found = line.find(name, 1);
                assert!(found.is_none_or(|found| versions.contains(&found)), "{found:?}");
            }
        });
        assert!(line.find(name, 1).is_some());
    }
}
