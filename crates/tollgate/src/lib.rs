//! Tollgate core. (Crate documentation follows.)

pub mod algorithm;
mod charge;
pub mod clock;
mod decision;
pub mod digest;
pub mod gate;
mod key;
mod limiter;
pub mod memory;
mod meter;
pub mod policy;
pub mod quota;
pub mod store;
mod subject;
mod sync;
mod time;

pub use algorithm::{Algorithm, Ask};
pub use charge::{Charge, ChargeSet, ChargeSetError, Cost, Enforcement, Op};
pub use clock::{Clock, ManualClock, SystemClock};
pub use decision::{Decision, Outcome, Outcomes, Provenance, Reading, Retry, Verdict};
pub use gate::{Admission, Gate};
pub use key::{Key, KeyPart};
pub use limiter::Limiter;
pub use memory::MemoryStore;
pub use meter::{Meter, MeterError};
pub use policy::{Fallback, Glob, Missing, Network, Override, Policy, Resolution, Rule};
pub use quota::{ParseQuotaError, Period, Quota};
pub use store::{Store, StoreError, StoreErrorKind};
pub use subject::{Costs, Subject};
pub use time::{MAX_EXACT, Micros, Timestamp};
