//! Until when hosts have asked to be left alone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most hosts remembered. Beyond that the pause that ends first is forgotten.
const MAX_HOSTS: usize = 1_024;

/// Hosts with a pause.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    until: Mutex<HashMap<Box<str>, Instant>>,
}

impl Pauses {
    /// How long a host is still to be left alone.
    pub(super) fn left(&self, host: &str) -> Option<Duration> {
        let until = self.lock().get(host).copied()?;
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Leaves a host alone for so long, or for longer if that was said before.
    pub(super) fn set(&self, host: &str, pause: Duration) {
        let now = Instant::now();
        let until = now + pause;
        let mut pauses = self.lock();
        if let Some(known) = pauses.get_mut(host) {
            *known = (*known).max(until);
            return;
        }
        if pauses.len() >= MAX_HOSTS {
            pauses.retain(|_, until| *until > now);
        }
        if pauses.len() >= MAX_HOSTS
            && let Some(first) = pauses.iter().min_by_key(|(_, until)| **until)
        {
            let first = first.0.clone();
            pauses.remove(&first);
        }
        pauses.insert(host.into(), until);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Instant>> {
        // Nothing panics while holding the lock.
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_longer_pause_stands_and_all_end() {
        let pauses = Pauses::default();
        pauses.set("a", Duration::from_secs(5));
        pauses.set("a", Duration::from_secs(2));
        assert_eq!(pauses.left("a"), Some(Duration::from_secs(5)));
        assert_eq!(pauses.left("b"), None);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(pauses.left("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_hosts_are_remembered_than_there_is_room_for() {
        let pauses = Pauses::default();
        for host in 0..MAX_HOSTS + 10 {
            pauses.set(&host.to_string(), Duration::from_secs(60 + host as u64));
        }
        assert_eq!(pauses.lock().len(), MAX_HOSTS);
        assert_eq!(pauses.left("0"), None, "the one to end first gave way");
        assert!(pauses.left("10").is_some());
    }
}
