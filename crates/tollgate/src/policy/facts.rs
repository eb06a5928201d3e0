//! A subject in the policy's own numbering, so that every test of a rule is a look into an array.

use smallvec::SmallVec;

use crate::charge::Cost;
use crate::subject::{Costs, Subject};

/// Up to so many axes are looked for among the values of a subject, one by one; of more, it is looked
/// up which a value is of.
const FEW: usize = 4;

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

    fn len(&self) -> usize {
        self.sorted.len()
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
    pub(super) fn new(
        axes: &Names,
        units: &Names,
        subject: &Subject<'a>,
        costs: &Costs<'_>,
    ) -> Self {
        let mut facts = Self::none();
        facts.learn(axes, units, subject, costs);
        facts
    }

    /// Nothing is known yet.
    #[inline(always)]
    pub(super) fn none() -> Self {
        Self { values: SmallVec::new(), costs: SmallVec::new() }
    }

    /// What is known of a request; in its place, for there is room for more than is commonly known.
    #[inline(always)]
    pub(super) fn learn(
        &mut self,
        axes: &Names,
        units: &Names,
        subject: &Subject<'a>,
        costs: &Costs<'_>,
    ) {
        if axes.len() <= FEW {
            for axis in axes.iter() {
                self.values.push(subject.value(axis));
            }
        } else {
            self.place_values(axes, subject);
        }
        for unit in units.iter() {
            self.costs.push(costs.of(unit));
        }
    }

    /// Puts each value in its place.
    fn place_values(&mut self, axes: &Names, subject: &Subject<'a>) {
        self.values.resize(axes.len(), None);
        for (axis, value) in subject.iter() {
            if let Some(place) = axes.find(axis) {
                self.values[place] = Some(value);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_in_their_places_whether_axes_are_few_or_many() {
        let all: Vec<String> = (0..40).map(|number| format!("axis-{number}")).collect();
        let subject = Subject::new().with("axis-3", "c").with("unknown", "u").with("axis-0", "a");
        for count in 0..all.len() {
            let names = Names::new(all[..count].iter().map(String::as_str));
            let facts = Facts::new(&names, &Names::default(), &subject, &Costs::default());
            for (place, name) in names.iter().enumerate() {
                assert_eq!(facts.value(place), subject.value(name), "{name} of {count}");
            }
        }
    }
}
