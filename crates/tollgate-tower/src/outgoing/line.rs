//! Calls that wait for the same thing stand in a line, so that they go in the order they came, and only
//! the first of them asks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard};

/// Lines, by what calls are counted by.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Mutex<HashMap<Box<str>, Weak<Line>>>,
}

/// Gone with the last who stands in it.
#[derive(Debug, Default)]
struct Line {
    first: Arc<FairMutex<()>>,
    standing: AtomicUsize,
}

/// A place in a line, left when dropped.
#[derive(Debug)]
pub(super) struct Standing {
    line: Arc<Line>,
    /// How many stood there before.
    pub(super) ahead: usize,
}

/// The place of the first; the next one's when dropped.
#[derive(Debug)]
pub(super) struct First {
    _place: OwnedMutexGuard<()>,
    _standing: Standing,
}

impl Lines {
    /// The end of the line of this name.
    pub(super) fn join(&self, name: &str) -> Standing {
        // Nothing panics while holding the lock.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(name).and_then(Weak::upgrade) {
            return Standing::new(line);
        }
        if lines.len() == lines.capacity() {
            lines.retain(|_, line| line.strong_count() > 0);
            // Room for as many again, so that this is not done for each that comes.
            let live = lines.len();
            lines.reserve(live);
        }
        let line = Arc::default();
        lines.insert(name.into(), Arc::downgrade(&line));
        Standing::new(line)
    }
}

impl Standing {
    fn new(line: Arc<Line>) -> Self {
        // Counts nothing but itself, hence relaxed.
        let ahead = line.standing.fetch_add(1, Ordering::Relaxed);
        Self { line, ahead }
    }

    /// The first place, if nobody has it.
    pub(super) fn step_up(self) -> Result<First, Self> {
        match Arc::clone(&self.line.first).try_lock_owned() {
            Ok(place) => Ok(First { _place: place, _standing: self }),
            Err(_) => Err(self),
        }
    }

    /// The first place, once all who came before have left it.
    pub(super) async fn wait(self) -> First {
        let place = Arc::clone(&self.line.first).lock_owned().await;
        First { _place: place, _standing: self }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.line.standing.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_comes_stands_behind_those_who_are_there() {
        let lines = Lines::default();
        let first = lines.join("a").step_up().unwrap();
        let second = lines.join("a").step_up().unwrap_err();
        assert_eq!((second.ahead, lines.join("a").ahead, lines.join("b").ahead), (1, 2, 0));
        drop(first);
        let third = lines.join("a");
        let first = second.wait().await;
        assert_eq!(third.ahead, 1);
        drop(first);
        assert!(third.step_up().is_ok());
    }

    #[test]
    fn lines_nobody_stands_in_are_forgotten() {
        let lines = Lines::default();
        let _kept = lines.join("kept");
        for name in 0..10_000 {
            lines.join(&name.to_string());
        }
        let lines = lines.lines.into_inner().unwrap();
        assert!(lines.capacity() < 100 && lines.contains_key("kept"), "{}", lines.capacity());
    }
}
