//! Telling the operator that the store does not answer, without flooding the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollgate::StoreError;
use tracing::{info, warn};

/// So long is nothing said again.
const PAUSE: Duration = Duration::from_secs(10);

/// Whether the store answered the last time it was asked, and what was said about it.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    trouble: Mutex<Option<Outage>>,
}

/// A time without answers.
#[derive(Debug)]
struct Outage {
    since: Instant,
    // What was wrong when it began.
    kind: &'static str,
    told: Instant,
    // Decisions made without the store since the outage was last told.
    untold: u64,
}

impl Alarm {
    /// A decision was made without the store.
    pub(crate) fn raise(&self, error: &StoreError) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match &mut *trouble {
            None => {
                warn!(kind = error.kind().name(), %error, "the store gives no answer; fallbacks decide");
                let kind = error.kind().name();
                *trouble = Some(Outage { since: now, kind, told: now, untold: 0 });
            }
            Some(outage) => {
                outage.untold += 1;
                if now - outage.told >= PAUSE {
                    let (decisions, seconds) = (outage.untold, (now - outage.since).as_secs());
                    warn!(decisions, seconds, kind = error.kind().name(), %error,
                        "the store still gives no answer; fallbacks decide");
                    (outage.told, outage.untold) = (now, 0);
                }
            }
        }
    }

    /// Since when decisions are made without the store, if they are.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let outage = trouble.as_ref()?;
        let seconds = outage.since.elapsed().as_secs();
        Some(format!("the store gave no answer when last asked ({}, for {seconds} s)", outage.kind))
    }

    /// The store has answered.
    pub(crate) fn rest(&self) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outage) = trouble.take() {
            let seconds = outage.since.elapsed().as_secs_f32();
            info!(seconds, "the store answers again");
        }
    }
}
