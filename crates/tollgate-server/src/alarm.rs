//! Telling the operator that the store does not answer, without flooding the log.
//!
//! ```text
//! no answer ──▶ told ──▶ still none: told again every PAUSE ──▶ CALM without an error: told, if the rest was
//! ```
//!
//! Where a part of the servers is down, or too much is asked, answers and errors come in turn, thousands a
//! second. So one answer does not end an outage, and one that begins soon after another was told is not told
//! before the pause is over.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tollgate::{StoreError, StoreErrorKind};
use tracing::{info, warn};

/// So long nothing is said again.
const PAUSE: Duration = Duration::from_secs(10);

/// An outage is over when there was no error for so long.
const CALM: Duration = Duration::from_secs(2);

/// Whether the store answers, and what was said about it.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outage: Option<Outage>,
    // When an outage was last told.
    told: Option<Instant>,
    // Decisions made without the store since then.
    untold: u64,
}

/// A time in which not everything was answered.
#[derive(Debug)]
struct Outage {
    since: Instant,
    // When the last question stayed without an answer, and of what kind that was.
    last: Instant,
    kind: StoreErrorKind,
    // Whether another has been answered since.
    answered: bool,
    told: bool,
}

/// What there is to say of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// It has begun.
    Began { decisions: u64 },
    /// It was told before, and goes on.
    GoesOn { decisions: u64, lasts: Duration },
}

impl Alarm {
    /// A decision was made without the store.
    pub(crate) fn raise(&self, error: &StoreError) {
        let news = self.lock().miss(error.kind(), Instant::now());
        // With what caused it, which may name servers: in the log, never in answers.
        let (kind, reason) = (error.kind().name(), format_args!("{error:#}"));
        match news {
            None => {}
            Some(News::Began { decisions }) => {
                warn!(kind, error = %reason, decisions, "the store gives no answer; fallbacks decide");
            }
            Some(News::GoesOn { decisions, lasts }) => {
                let seconds = lasts.as_secs();
                warn!(kind, error = %reason, decisions, seconds,
                    "the store still gives no answer; fallbacks decide");
            }
        }
    }

    /// Since when decisions are made without the store, if they are.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().trouble(Instant::now())
    }

    /// The store has answered.
    pub(crate) fn rest(&self) {
        let ended = {
            let mut state = self.lock();
            if state.outage.is_none() {
                return;
            }
            state.answer(Instant::now())
        };
        if let Some(lasted) = ended {
            info!(seconds = lasted.as_secs_f32(), "the store answers again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes a question without an answer, and says what to say of it.
    fn miss(&mut self, kind: StoreErrorKind, now: Instant) -> Option<News> {
        let new = Outage { since: now, last: now, kind, answered: false, told: false };
        let outage = self.outage.get_or_insert(new);
        (outage.last, outage.kind, outage.answered) = (now, kind, false);
        self.untold += 1;
        if self.told.is_some_and(|told| now - told < PAUSE) {
            return None;
        }
        self.told = Some(now);
        let decisions = std::mem::take(&mut self.untold);
        let (before, lasts) = (std::mem::replace(&mut outage.told, true), now - outage.since);
        Some(if before { News::GoesOn { decisions, lasts } } else { News::Began { decisions } })
    }

    /// Notes an answer; how long the outage lasted, if it is over with that and was told.
    fn answer(&mut self, now: Instant) -> Option<Duration> {
        let outage = self.outage.as_mut()?;
        outage.answered = true;
        if now - outage.last < CALM {
            return None;
        }
        let outage = self.outage.take()?;
        outage.told.then_some(outage.last - outage.since)
    }

    fn trouble(&self, now: Instant) -> Option<String> {
        let Outage { since, last, kind, answered, .. } = self.outage.as_ref()?;
        let what = match answered {
            true if now - *last >= CALM => return None,
            true => "the store does not answer everything it is asked",
            false => "the store gave no answer when last asked",
        };
        Some(format!("{what} ({}, for {} s)", kind.name(), (now - *since).as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: StoreErrorKind = StoreErrorKind::Timeout;

    #[test]
    fn answers_and_errors_in_turn_are_one_outage_told_now_and_then() {
        let (mut state, begin) = (State::default(), Instant::now());
        let mut said = Vec::new();
        for millis in 0..25_000 {
            let now = begin + Duration::from_millis(millis);
            said.extend(state.miss(KIND, now));
            assert_eq!(state.answer(now), None, "after {millis} ms");
        }
        let lasts = |seconds| Duration::from_secs(seconds);
        assert_eq!(
            said,
            [
                News::Began { decisions: 1 },
                News::GoesOn { decisions: 10_000, lasts: lasts(10) },
                News::GoesOn { decisions: 10_000, lasts: lasts(20) },
            ]
        );
        let trouble = state.trouble(begin + Duration::from_secs(25)).expect("an outage");
        assert_eq!(trouble, "the store does not answer everything it is asked (timeout, for 25 s)");
        // Nobody asks any more: that is no trouble for ever.
        assert_eq!(state.trouble(begin + Duration::from_secs(28)), None);
        let lasted = state.answer(begin + Duration::from_secs(28));
        assert_eq!(lasted, Some(Duration::from_millis(24_999)));
        assert_eq!(state.answer(begin + Duration::from_secs(29)), None);
    }

    #[test]
    fn an_outage_soon_after_another_waits_to_be_told() {
        let (mut state, begin) = (State::default(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(state.miss(KIND, after(0)), Some(News::Began { decisions: 1 }));
        assert_eq!(state.answer(after(3)), Some(Duration::ZERO));
        assert_eq!(state.miss(KIND, after(4)), None);
        assert!(state.trouble(after(4)).is_some_and(|text| text.contains("when last asked")));
        // What was not told to begin is not told to end.
        assert_eq!(state.answer(after(7)), None);
        assert_eq!(state.trouble(after(7)), None);
        assert_eq!(state.miss(KIND, after(9)), None);
        assert_eq!(state.miss(KIND, after(10)), Some(News::Began { decisions: 3 }));
    }
}
