//! Where keys are, and where they come to be when they take.

use std::ptr;

use super::*;
use crate::algorithm::Algorithm;
use crate::clock::ManualClock;

/// Two thousand keys that have taken once, which is more than fit into the homes there are for them.
struct Crowd {
    store: MemoryStore<ManualClock>,
    meter: Meter,
    keys: Vec<String>,
}

impl Crowd {
    fn new() -> Self {
        let store = MemoryStore::builder().build_with_clock(ManualClock::at_secs(1_000_000));
        let meter = Meter::new("1000000/h".parse().unwrap(), Algorithm::TokenBucket).unwrap();
        let keys = (0..2_000).map(|user| format!("user:{user}")).collect();
        let crowd = Self { store, meter, keys };
        crowd.keys.iter().for_each(|key| crowd.take(key));
        crowd
    }

    fn take(&self, key: &str) {
        assert!(self.store.take(key, self.meter, Cost::ONE).is_allowed());
    }

    fn left(&self, key: &str) -> u64 {
        let decision = self.store.peek(key, self.meter, Cost::ONE);
        decision.outcomes()[0].reading.unwrap().remaining
    }

    fn find(&self, key: &str) -> Found<'_> {
        self.store.fetch(Key::from(key).as_ref(), &self.meter)
    }

    fn is_home(&self, key: &str) -> bool {
        let Found { fingerprint, line } = self.find(key);
        line.find_any(fingerprint).is_some()
    }

    /// Who has the slot that a key should have.
    fn holder(&self, key: &str) -> &str {
        let Found { fingerprint, line } = self.find(key);
        let holder = line.own(fingerprint).fingerprint();
        let holder = self.keys.iter().find(|key| self.find(key).fingerprint == holder);
        holder.expect("homes that overflow are full")
    }

    /// In which slot of its home a key is.
    fn place(&self, key: &str) -> Option<usize> {
        let Found { fingerprint, line } = self.find(key);
        line.find(fingerprint).map(|(place, _)| place)
    }

    fn has_its_own(&self, key: &str) -> bool {
        let Found { fingerprint, line } = self.find(key);
        line.own(fingerprint).fingerprint() == fingerprint
    }

    /// Keys that are away, and whose own slots are taken by right.
    fn displaced(&self) -> impl Iterator<Item = &String> {
        let is_displaced = |key: &&String| !self.is_home(key) && self.has_its_own(self.holder(key));
        self.keys.iter().filter(is_displaced)
    }

    /// Keys in the same home as this one, or in what continues it.
    fn beside(&self, key: &str) -> impl Iterator<Item = &String> {
        let line = self.find(key).line;
        self.keys.iter().filter(move |other| ptr::eq(self.find(other).line, line))
    }
}

/// Whoever is asked for most shall not have to be looked for in a second place.
#[test]
fn a_key_that_takes_comes_home_and_nobody_is_lost() {
    let crowd = Crowd::new();
    let settled = crowd.keys.iter().filter(|key| crowd.has_its_own(key)).count();
    assert!((1_000..2_000).contains(&settled), "of 2000 keys {settled} have their own slots");
    let away: Vec<&String> = crowd.keys.iter().filter(|key| !crowd.is_home(key)).collect();
    assert!(!away.is_empty(), "a table this full has keys in overflow lines");
    for key in &away {
        crowd.take(key);
        assert!(crowd.is_home(key), "{key} took and is not at home");
    }
    for key in &crowd.keys {
        assert_eq!(crowd.left(key), if away.contains(&key) { 999_998 } else { 999_999 }, "{key}");
    }
}

#[test]
fn keys_that_take_have_their_own_slots_unless_those_are_taken_by_right() {
    let crowd = Crowd::new();
    let (mut settled, mut in_turn) = (0, 0);
    for key in &crowd.keys {
        let before = crowd.place(key);
        crowd.take(key);
        let holder = crowd.holder(key);
        settled += usize::from(holder == key);
        if holder != key && before.is_some() {
            // It took from where it was, and left everybody else there too.
            assert!(crowd.has_its_own(holder), "{key} gave way to {holder}");
            assert_eq!(crowd.place(key), before, "{key}");
            in_turn += 1;
        }
    }
    assert!(settled > 1_400, "of 2000 keys {settled} got their own slots");
    assert!(in_turn > 100, "of 2000 keys {in_turn} found theirs taken");
    crowd.keys.iter().for_each(|key| assert_eq!(crowd.left(key), 999_998, "{key}"));

    // Who had it by right is gone, and only the next to take is there for the slot.
    let waits = |key: &&String| crowd.is_home(key) && !crowd.has_its_own(key);
    let key = crowd.keys.iter().find(waits).expect("a key that found its slot taken");
    crowd.store.reset(crowd.holder(key), crowd.meter);
    assert!(!crowd.has_its_own(key));
    crowd.take(key);
    assert!(crowd.has_its_own(key));
}

/// Only secrets nobody draws would lead so many to one home. None may be lost there all the same.
#[test]
fn a_home_of_hundreds_of_keys_loses_none() {
    let mut crowd = Crowd::new();
    crowd.store = MemoryStore::builder().build_with_clock(ManualClock::at_secs(1_000_000));
    let name = |key: &String| crowd.find(key).fingerprint.low.swap_bytes() & 0x3ff;
    let names = (0..).map(|user| format!("user:{user}"));
    crowd.keys = names.filter(|key| name(key) == 7).take(600).collect();
    crowd.keys.iter().for_each(|key| crowd.take(key));
    assert_eq!(crowd.store.keys(), crowd.keys.len());
    let line = crowd.find(&crowd.keys[0]).line;
    assert!(crowd.keys.iter().all(|key| ptr::eq(crowd.find(key).line, line)));
    for key in &crowd.keys {
        assert_eq!(crowd.left(key), 999_999, "{key}");
        crowd.take(key);
    }
    crowd.keys.iter().for_each(|key| assert_eq!(crowd.left(key), 999_998, "{key}"));
}

/// The slot of a key that is gone is there for who comes home, even where its own is taken.
#[test]
fn nobody_is_sent_away_where_there_is_room() {
    let crowd = Crowd::new();
    let mut tried = 0;
    for away in crowd.displaced() {
        let at_home = || crowd.beside(away).filter(|key| crowd.is_home(key)).collect::<Vec<_>>();
        let holder = crowd.holder(away);
        let Some(gone) = at_home().into_iter().find(|key| *key != holder) else { continue };
        crowd.store.reset(gone, crowd.meter);
        let before = at_home();
        crowd.take(away);
        let after = at_home();
        assert!(crowd.is_home(away) && before.iter().all(|key| after.contains(key)), "{away}");
        tried += 1;
    }
    assert!(tried > 20, "{tried} tried");
}

/// Requests that come in turn shall not fall into step with whose turn it is to go.
#[test]
fn who_comes_home_is_not_sent_away_in_every_turn() {
    let crowd = Crowd::new();
    let mut tried = 0;
    for away in crowd.displaced() {
        let is_other = |key: &&String| crowd.has_its_own(key) && *key != crowd.holder(away);
        let Some(other) = crowd.beside(away).find(is_other) else { continue };
        for phase in 0..6 {
            crowd.take(other);
            let mut at_home = 0;
            for _ in 0..30 {
                at_home += usize::from(crowd.is_home(away));
                crowd.take(away);
                (0..4).for_each(|_| crowd.take(other));
            }
            assert!(at_home > 10, "{away} was at home {at_home} times of 30, phase {phase}");
        }
        tried += 1;
    }
    assert!(tried > 50, "{tried} tried");
}

/// They would go on sending each other away, where there is room for both.
#[test]
fn two_busy_keys_that_name_the_same_slot_are_both_at_home_in_the_end() {
    let crowd = Crowd::new();
    let mut pairs = 0;
    for key in &crowd.keys {
        if crowd.is_home(key) {
            continue;
        }
        let holder = crowd.holder(key);
        pairs += usize::from(crowd.has_its_own(holder));
        for _ in 0..5 {
            crowd.take(key);
            crowd.take(holder);
        }
        assert!(crowd.is_home(key) && crowd.is_home(holder), "{key} and {holder}");
    }
    assert!(pairs > 0, "of so many keys some name the same slot");
}
