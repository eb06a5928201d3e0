//! One look at all deadlines, instead of a timer for each.
//!
//! Whoever asks has as long as everybody else, as a rule, so nothing that is asked after a look ends
//! before that look and the deadline. The next look is then, or at the first end of what is there by
//! now. Who has less time than that looks to it themselves. While nobody asks nobody looks.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::{Node, Waiting, fail};
use crate::failure::Failure;

/// What the watch is about.
pub(super) enum Watch {
    /// It sleeps until somebody asks.
    Asleep,
    /// It looks around, or is about to.
    Looking,
    /// It looks again at `next`; whether anybody has asked since it last looked.
    Waiting { next: Instant, asked: bool },
}

impl Watch {
    /// Whether it will see in time that a question asked now has to be answered by `end`.
    pub(super) fn sees(&mut self, end: Instant, roused: &Notify) -> bool {
        match self {
            Self::Asleep => {
                *self = Self::Looking;
                roused.notify_one();
                false
            }
            // It may have looked already where this question will be.
            Self::Looking => false,
            Self::Waiting { next, asked } => {
                *asked = true;
                *next <= end
            }
        }
    }
}

/// Tells everybody whose time is over, for as long as the node lives.
pub(super) async fn watch(node: Weak<Node>, roused: Arc<Notify>) {
    loop {
        let Some(next) = node.upgrade().map(|node| node.look(Instant::now())) else { return };
        match next {
            Some(next) => sleep_until(next.into()).await,
            None => roused.notified().await,
        }
    }
}

impl Node {
    /// Tells those whose time is over, and says when to look again, if at all.
    fn look(&self, now: Instant) -> Option<Instant> {
        let (flights, late, gathered, asked) = {
            let mut state = self.lock();
            let asked = match std::mem::replace(&mut state.watch, Watch::Looking) {
                Watch::Waiting { asked, .. } => asked,
                Watch::Asleep | Watch::Looking => true,
            };
            let is_late = |waiting: &Waiting| waiting.asked.end <= now;
            let mut late = VecDeque::new();
            if state.waiting.iter().any(is_late) {
                let waiting = std::mem::take(&mut state.waiting);
                let (over, going) = waiting.into_iter().partition(is_late);
                (late, state.waiting) = (over, going);
            }
            state.flights.retain(|flight| flight.strong_count() > 0);
            let flights: Vec<_> = state.flights.iter().filter_map(Weak::upgrade).collect();
            // They may board while flights are given up below, and then are in neither place.
            let gathered = state.waiting.iter().map(|waiting| waiting.asked.end).min();
            (flights, late, gathered, asked)
        };
        fail(late, &Failure::timeout());
        let soonest = flights.iter().filter_map(|flight| flight.expire(now)).min();
        // The last of a flight may be its end, which needs the lock.
        drop(flights);

        let mut state = self.lock();
        let waiting = state.waiting.iter().map(|waiting| waiting.asked.end);
        let soonest = waiting.chain(soonest).chain(gathered).min();
        // What boarded since it looked is still out.
        if soonest.is_none() && !asked && state.flights.is_empty() {
            state.watch = Watch::Asleep;
            return None;
        }
        let next =
            soonest.map_or(now + self.shared.deadline, |end| end.min(now + self.shared.deadline));
        state.watch = Watch::Waiting { next, asked: false };
        Some(next)
    }
}
