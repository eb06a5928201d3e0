//! Charges made behind requests that do not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use tollgate::{Deferred, Gate, Store};

use crate::reception::Inspect;

/// Makes charges of non-critical rules, so many at once; those beyond are left unmade and counted.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    room: Arc<Semaphore>,
    skipped: Arc<AtomicU64>,
}

impl Behind {
    pub(crate) fn new(most: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(most)), skipped: Arc::default() }
    }

    /// Charges that were not made for want of room.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Charges in a task of its own.
    pub(crate) fn charge<S: Store + 'static>(
        &self,
        gate: &Arc<Gate<S>>,
        deferred: Deferred,
        inspect: Option<&Arc<Inspect>>,
    ) {
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let (gate, inspect) = (Arc::clone(gate), inspect.map(Arc::clone));
        tokio::spawn(async move {
            let admission = gate.charge(deferred).await;
            if let Some(inspect) = inspect {
                inspect(&admission);
            }
            drop(room);
        });
    }
}
