//! A subject in the policy's own numbering, so that every test of a rule is a look into an array.

use smallvec::SmallVec;

use crate::charge::Cost;
use crate::subject::{Costs, Subject};

/// Names, sorted, numbered by their place.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    sorted: Vec<Box<str>>,
}

impl Names {
    pub(super) fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut sorted: Vec<Box<str>> = names.into_iter().map(Into::into).collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self { sorted }
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.sorted.binary_search_by(|known| (**known).cmp(name)).ok()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.sorted.iter().map(|name| &**name)
    }
}

/// What is known of one request, by the numbers of axes and units.
pub(super) struct Facts<'a> {
    values: SmallVec<[Option<&'a str>; 8]>,
    costs: SmallVec<[Option<Cost>; 4]>,
}

impl<'a> Facts<'a> {
    #[inline(always)]
    pub(super) fn new(
        axes: &Names,
        units: &Names,
        subject: &Subject<'a>,
        costs: &Costs<'_>,
    ) -> Self {
        // A subject has few values, so looking through them for each name beats any index of names.
        let mut facts = Self { values: SmallVec::new(), costs: SmallVec::new() };
        for axis in axes.iter() {
            facts.values.push(subject.value(axis));
        }
        for unit in units.iter() {
            facts.costs.push(costs.of(unit));
        }
        facts
    }

    #[inline]
    pub(super) fn value(&self, axis: usize) -> Option<&'a str> {
        self.values[axis]
    }

    #[inline]
    pub(super) fn cost(&self, unit: usize) -> Option<Cost> {
        self.costs[unit]
    }
}
