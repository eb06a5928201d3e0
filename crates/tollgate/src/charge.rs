//! What is asked of a store: charges, bundled into sets that are decided whole.

use std::error::Error;
use std::fmt;
use std::mem;
use std::num::NonZeroU64;
use std::slice;

use crate::algorithm::Ask;
use crate::key::Key;
use crate::meter::Meter;
use crate::time::Timestamp;

/// Units one request takes; never zero (looking without taking is another verb, *peek*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(NonZeroU64);

impl Cost {
    /// One unit.
    pub const ONE: Self = Self(NonZeroU64::MIN);

    /// So many units, or `None` for zero.
    pub const fn new(units: u64) -> Option<Self> {
        match NonZeroU64::new(units) {
            Some(units) => Some(Self(units)),
            None => None,
        }
    }

    /// The units.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The sum of two costs; the largest there is when it does not fit.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.get()))
    }
}

/// What a charge does to its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Take units: all of `max`, or (a lease) as many as are left if those are at least `min`.
    Take(Ask),
    /// See whether `Cost` would fit; change nothing.
    Peek(Cost),
    /// Give back units that a decision made at `at` took.
    Refund {
        /// The units to give back.
        cost: Cost,
        /// The decision's [`at`](crate::Decision::at).
        at: Timestamp,
    },
    /// Forget the bucket.
    Reset,
}

impl Op {
    /// The op of two charges on one bucket made into one, or `None` if they cannot be.
    fn merge(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Take(one), Self::Take(two)) => {
                Some(Self::Take(Ask { min: one.min.plus(two.min), max: one.max.plus(two.max) }))
            }
            (Self::Peek(one), Self::Peek(two)) => Some(Self::Peek(one.plus(two))),
            (Self::Refund { cost, at }, Self::Refund { cost: more, at: also }) if at == also => {
                Some(Self::Refund { cost: cost.plus(more), at })
            }
            (Self::Reset, Self::Reset) => Some(Self::Reset),
            _ => None,
        }
    }
}

/// Whether a charge that does not fit refuses its set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Enforcement {
    /// It does.
    #[default]
    Enforce,
    /// It never does; it is taken when it fits and the set is admitted.
    Shadow,
    /// It does only if every charge of the same group in the set does not fit either.
    AnyOf(u8),
}

/// One question about one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge<'a> {
    /// Whose bucket.
    pub key: Key<'a>,
    /// How it is metered. With the key, the algorithm and the period name the bucket.
    pub meter: Meter,
    /// What to do.
    pub op: Op,
    /// Whether it can refuse the set.
    pub enforcement: Enforcement,
}

impl<'a> Charge<'a> {
    /// Takes `cost` units, enforced.
    pub fn take(key: impl Into<Key<'a>>, meter: Meter, cost: Cost) -> Self {
        Self::new(key, meter, Op::Take(Ask::exactly(cost)))
    }

    /// Looks whether `cost` units would fit.
    pub fn peek(key: impl Into<Key<'a>>, meter: Meter, cost: Cost) -> Self {
        Self::new(key, meter, Op::Peek(cost))
    }

    /// Any op, enforced.
    pub fn new(key: impl Into<Key<'a>>, meter: Meter, op: Op) -> Self {
        Self { key: key.into(), meter, op, enforcement: Enforcement::Enforce }
    }

    /// The same charge with another enforcement.
    pub fn enforced(self, enforcement: Enforcement) -> Self {
        Self { enforcement, ..self }
    }

    /// Whether both charges are about the same bucket.
    fn same_bucket(&self, other: &Self) -> bool {
        self.meter.algorithm() == other.meter.algorithm()
            && self.meter.period() == other.meter.period()
            && self.key == other.key
    }
}

/// An all-or-nothing bundle of charges, decided at one instant.
///
/// Every enforcing charge fits and all are taken, or nothing changes. At most
/// [`ChargeSet::MAX`] charges, each about a bucket of its own: charges on the same bucket are added
/// up.
///
/// ```
/// use tollgate::{Algorithm, Charge, ChargeSet, Cost, Meter};
///
/// let per_user = Meter::new("100/min".parse()?, Algorithm::SlidingWindow)?;
/// let global = Meter::new("5000/s".parse()?, Algorithm::TokenBucket)?;
/// let mut set = ChargeSet::new();
/// set.push(Charge::take("user:42", per_user, Cost::ONE))?;
/// set.push(Charge::take("everybody", global, Cost::ONE))?;
/// assert_eq!(set.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ChargeSet<'a> {
    charges: Held<'a>,
}

/// Charges where they are held.
#[derive(Clone, Debug)]
enum Held<'a> {
    /// One charge is by far the most common, and must not touch the heap.
    One(Charge<'a>),
    Many(Vec<Charge<'a>>),
}

impl<'a> ChargeSet<'a> {
    /// The most charges in a set. It keeps a decision short in every store.
    pub const MAX: usize = 16;

    /// A set without charges; it is admitted.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set of one charge.
    pub fn of(charge: Charge<'a>) -> Self {
        Self { charges: Held::One(charge) }
    }

    /// Adds a charge and says which outcome of the decision will be its own.
    ///
    /// A charge on a bucket the set already has is added to that one, and they share an outcome.
    #[inline]
    pub fn push(&mut self, charge: Charge<'a>) -> Result<usize, ChargeSetError> {
        // The first, and most often the only one, has nothing to be compared with.
        if self.is_empty() {
            self.charges = Held::One(charge);
            return Ok(0);
        }
        self.push_beside(charge)
    }

    fn push_beside(&mut self, charge: Charge<'a>) -> Result<usize, ChargeSetError> {
        let charges = self.charges.as_many();
        if let Some(index) = charges.iter().position(|known| known.same_bucket(&charge)) {
            let known = &mut charges[index];
            let alike = known.meter == charge.meter && known.enforcement == charge.enforcement;
            let merged = known.op.merge(charge.op).filter(|_| alike);
            known.op =
                merged.ok_or_else(|| ChargeSetError::Conflict { key: charge.key.to_string() })?;
            return Ok(index);
        }
        if charges.len() == Self::MAX {
            return Err(ChargeSetError::Full);
        }
        charges.push(charge);
        Ok(charges.len() - 1)
    }

    /// Puts the only charge, where there is none.
    #[inline(always)]
    pub(crate) fn put_only(&mut self, charge: Charge<'a>) -> &mut Charge<'a> {
        self.charges = Held::One(charge);
        match &mut self.charges {
            Held::One(charge) => charge,
            Held::Many(_) => unreachable!("one was just put there"),
        }
    }

    /// Adds a charge on a bucket the set does not have, if there is room.
    #[inline]
    pub(crate) fn push_distinct(&mut self, charge: Charge<'a>) -> Option<&mut Charge<'a>> {
        match self.len() {
            0 => self.charges = Held::One(charge),
            Self::MAX.. => return None,
            _ => self.charges.as_many().push(charge),
        }
        match &mut self.charges {
            Held::One(charge) => Some(charge),
            Held::Many(charges) => charges.last_mut(),
        }
    }

    /// The charges, in the order of their outcomes.
    pub fn charges(&self) -> &[Charge<'a>] {
        match &self.charges {
            Held::One(charge) => slice::from_ref(charge),
            Held::Many(charges) => charges,
        }
    }

    /// How many charges there are.
    pub fn len(&self) -> usize {
        self.charges().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.charges().is_empty()
    }
}

/// Whether they are the same charges, however they are held.
impl PartialEq for ChargeSet<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.charges() == other.charges()
    }
}

impl Eq for ChargeSet<'_> {}

impl Default for Held<'_> {
    /// None.
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl<'a> Held<'a> {
    /// The charges, held so that there can be more.
    fn as_many(&mut self) -> &mut Vec<Charge<'a>> {
        if let Self::One(_) = self
            && let Self::One(charge) = mem::take(self)
        {
            *self = Self::Many(vec![charge]);
        }
        match self {
            Self::Many(charges) => charges,
            Self::One(_) => unreachable!("one is held as many"),
        }
    }
}

/// Why a charge cannot join a set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChargeSetError {
    /// The set has [`ChargeSet::MAX`] charges.
    Full,
    /// The set has a charge on the same bucket with another limit, op or enforcement.
    Conflict {
        /// The bucket's key.
        key: String,
    },
}

impl fmt::Display for ChargeSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "a set holds at most {} charges", ChargeSet::MAX),
            Self::Conflict { key } => write!(
                f,
                "key {key:?} is charged twice with different limits or ops; \
                 give both charges the same quota, or different keys"
            ),
        }
    }
}

impl Error for ChargeSetError {}
