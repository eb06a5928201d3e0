//! The memory store stays within its bounds however many clients pass by, and forgets the right
//! ones.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tollgate::{Algorithm, Cost, Key, ManualClock, MemoryStore, Meter, Micros};
use tollgate_testkit::conformance::meter;

const MAX_KEYS: usize = 1_000_000;
const PASSING: u64 = 20_000_000;
const REGULARS: u64 = 100;
/// Passers-by between two rounds of the regulars.
const BETWEEN_ROUNDS: u64 = 10_000;

#[global_allocator]
static COUNTING: Counting = Counting;

/// The system's allocator, counting for each thread what it holds.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

/// Counts bytes that this thread allocated, or freed if negative.
fn count(bytes: i64) {
    // A thread that is ending has nothing left to measure.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

#[expect(
    unsafe_code,
    reason = "an allocator cannot be written without; every call goes on to the system's"
)]
// SAFETY: each method passes its arguments on to the system's allocator and returns what it does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The most bytes this thread held at once while it ran `work`, beyond what it held before.
fn peak_bytes(work: impl FnOnce()) -> i64 {
    let before = HELD.get();
    MOST.set(before);
    work();
    MOST.get() - before
}

fn store_of_a_million() -> (MemoryStore<ManualClock>, ManualClock) {
    let clock = ManualClock::at_secs(1_700_000_000);
    let builder = MemoryStore::builder().max_keys(MAX_KEYS);
    (builder.build_with_clock(clock.clone()), clock)
}

fn pass_by(store: &MemoryStore<ManualClock>, meter: Meter, number: u64) {
    let name = number.to_le_bytes();
    let decision = store.take(Key::new(&name), meter, Cost::ONE);
    assert!(decision.is_allowed(), "passer-by {number} comes for the first time");
}

#[test]
fn twenty_million_clients_fit_the_memory_of_one_million_and_regulars_are_remembered() {
    // A unit lasts a minute, and all of this takes 20 seconds: everybody is live.
    let meter = meter("1/min burst 10000", Algorithm::TokenBucket);
    let (store, _) = store_of_a_million();
    let needed = peak_bytes(|| (0..MAX_KEYS as u64).for_each(|one| pass_by(&store, meter, one)));
    assert_eq!((store.keys(), store.evictions()), (MAX_KEYS, 0), "all fit");
    drop(store);

    let (store, clock) = store_of_a_million();
    let mut rounds = 0;
    let used = peak_bytes(|| {
        for number in 0..PASSING {
            if number % BETWEEN_ROUNDS == 0 {
                rounds += 1;
                (0..REGULARS).for_each(|one| visit(&store, meter, one, rounds));
            }
            pass_by(&store, meter, number);
            clock.advance(Micros::new(1));
        }
    });
    let keys = store.keys();
    assert!(keys <= MAX_KEYS + 1, "{keys} keys are held");
    let came = (PASSING + REGULARS) as usize;
    assert_eq!(store.evictions(), came - keys, "every key is held or was counted out");
    assert!(
        used <= needed + needed / 20,
        "{used} bytes for 20 million keys, {needed} for one million"
    );
}

/// A regular takes one more unit, and every earlier one must still count.
fn visit(store: &MemoryStore<ManualClock>, meter: Meter, regular: u64, round: u64) {
    let name = format!("regular {regular}");
    let decision = store.take(&name, meter, Cost::ONE);
    let reading = decision.outcomes()[0].reading.expect("numbers");
    assert_eq!(reading.remaining, 10_000 - round, "{name} in round {round}");
}

#[test]
fn a_table_of_any_size_stays_even_when_it_is_full() {
    // Between two powers of two some homes get half the keys of the others. Keys once gave way from
    // each home in turn, so that those ran dry, the rest overflowed, and in the end the store
    // panicked.
    let meter = meter("1/min burst 10000", Algorithm::TokenBucket);
    for max_keys in [1, 8, 50, 1_000, 10_000, 16_000] {
        let clock = ManualClock::at_secs(1_700_000_000);
        let builder = MemoryStore::builder().max_keys(max_keys);
        let store = builder.build_with_clock(clock.clone());
        let passing = 30 * max_keys as u64;
        for number in 0..passing {
            pass_by(&store, meter, number);
            clock.advance(Micros::new(1));
            let keys = store.keys();
            assert!(keys <= max_keys, "{keys} keys of {max_keys} after {number}");
        }
        let gone = passing as usize - max_keys;
        assert_eq!(store.evictions(), gone, "{max_keys}: all others gave way");
    }
}

#[test]
fn those_whose_time_is_over_make_room_without_anybody_giving_way() {
    for algorithm in Algorithm::ALL {
        let (store, clock) = store_of_a_million();
        let meter = meter("1/s", algorithm);
        let mut most = 0;
        for number in 0..500_000 {
            pass_by(&store, meter, number);
            // Ten thousand a second.
            clock.advance(Micros::new(100));
            most = most.max(store.keys());
        }
        assert!(most <= 60_000, "{algorithm}: {most} keys held, 20,000 live");
        assert_eq!(store.evictions(), 0, "{algorithm}: nobody live gave way");
    }
}

#[test]
fn logs_stay_within_their_bound_together() {
    let clock = ManualClock::at_secs(1_700_000_000);
    let builder = MemoryStore::builder().max_log_entries(10_000);
    let store = builder.build_with_clock(clock.clone());
    let meter = meter("10/h", Algorithm::SlidingLog);
    for number in 0..50_000_u64 {
        let name = (number / 10).to_le_bytes();
        let decision = store.take(Key::new(&name), meter, Cost::ONE);
        assert!(decision.is_allowed(), "ten of ten, {number}");
        clock.advance(Micros::new(1));
        let entries = store.log_entries();
        assert!(entries <= 10_000, "{entries} entries after {number}");
    }
    assert!(store.evictions() >= 4_000, "{} of 5,000", store.evictions());
    assert!(store.log_entries() >= 9_000, "no more give way than must");
    let newest = 4_999_u64.to_le_bytes();
    let again = store.take(Key::new(&newest), meter, Cost::ONE);
    assert!(!again.is_allowed(), "the newest log is still there");
}

#[test]
fn logs_whose_time_is_over_give_way_first_and_are_not_counted() {
    let clock = ManualClock::at_secs(1_700_000_000);
    let builder = MemoryStore::builder().max_log_entries(1_000);
    let store = builder.build_with_clock(clock.clone());
    let meter = meter("1/s", Algorithm::SlidingLog);
    for number in 0..100_000 {
        pass_by(&store, meter, number);
        // A hundred live at any time, a tenth of what fits.
        clock.advance(Micros::from_millis(10));
        let entries = store.log_entries();
        assert!(entries <= 1_000, "{entries} entries after {number}");
    }
    assert_eq!(store.evictions(), 0, "nobody live gave way");
}

#[test]
fn a_log_larger_than_the_bound_holds_no_more_than_its_own_limit() {
    let clock = ManualClock::at_secs(1_700_000_000);
    let builder = MemoryStore::builder().max_log_entries(100);
    let store = builder.build_with_clock(clock.clone());
    let busy = meter("1000/h", Algorithm::SlidingLog);
    let quiet = meter("1/h", Algorithm::SlidingLog);
    let mut granted = 0;
    for number in 0..2_000 {
        granted += u64::from(store.take("busy", busy, Cost::ONE).is_allowed());
        pass_by(&store, quiet, number);
        clock.advance(Micros::new(1));
        let entries = store.log_entries();
        assert!(entries <= 1_001, "{entries} entries after {number}");
    }
    assert!(granted >= 1_000, "a limit of 1,000 and {granted} granted");
    assert!(store.evictions() > 0, "somebody gave way");
}
