//! Which quotas a rule has for whom.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::facts::Facts;
use crate::meter::Meter;

/// What must all fit: one meter, or several with periods of their own. Never empty.
pub(super) type Meters = SmallVec<[Meter; 1]>;

/// A rule's meters, by tier where it has any.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// What those get who are in no tier.
    pub(super) others: Meters,
    pub(super) tiers: Option<TierTable>,
}

/// Meters by the value of an axis.
#[derive(Clone, Debug)]
pub(super) struct TierTable {
    axis: usize,
    // By name, for a binary search.
    named: Vec<(Box<str>, Meters)>,
}

impl TierTable {
    pub(super) fn new(axis: usize, mut named: Vec<(Box<str>, Meters)>) -> Self {
        named.sort_by(|(one, _), (two, _)| one.cmp(two));
        Self { axis, named }
    }
}

impl Table {
    /// The meters of a subject, and the tier's name if it is in one.
    #[inline]
    pub(super) fn pick(&self, facts: &Facts<'_>) -> (&Meters, Option<&str>) {
        let tier = self.tiers.as_ref().and_then(|tiers| {
            let value = facts.value(tiers.axis)?;
            let found = tiers.named.binary_search_by(|(name, _)| (**name).cmp(value));
            found.ok().map(|index| &tiers.named[index])
        });
        match tier {
            Some((name, meters)) => (meters, Some(name)),
            None => (&self.others, None),
        }
    }

    /// The most charges it makes for one subject.
    pub(super) fn width(&self) -> usize {
        let tiers = self.tiers.iter().flat_map(|tiers| &tiers.named);
        let widths = tiers.map(|(_, meters)| meters.len());
        widths.max().unwrap_or(0).max(self.others.len())
    }
}

/// The strictest of several: that with the lowest sustained rate, then with the smallest capacity;
/// the first of equals. Several quotas together are as strict as the strictest of them.
pub(super) fn strictest<'m>(all: impl Iterator<Item = &'m Meters>) -> Option<&'m Meters> {
    all.min_by(|one, two| by_strictness(hardest(one), hardest(two)))
}

fn hardest(meters: &Meters) -> &Meter {
    let hardest = meters.iter().min_by(|one, two| by_strictness(one, two));
    hardest.expect("meters are never empty")
}

fn by_strictness(one: &Meter, two: &Meter) -> Ordering {
    // limit/period of each, over a common denominator.
    let rate = |meter: &Meter, other: &Meter| {
        u128::from(meter.limit()) * u128::from(other.period().as_micros())
    };
    let by_rate = rate(one, two).cmp(&rate(two, one));
    by_rate.then_with(|| one.capacity().cmp(&two.capacity()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::quota::parse_list;

    #[test]
    fn the_strictest_has_the_lowest_rate_then_the_smallest_capacity() {
        let meters = |text: &str| -> Meters {
            let quotas = parse_list(text).unwrap().into_iter();
            quotas.map(|quota| Meter::new(quota, Algorithm::TokenBucket).unwrap()).collect()
        };
        for (texts, expected) in [
            (&["100/s", "1000/min", "2/s"][..], 2),
            (&["60/min", "1/s", "61/min"], 1),
            (&["10/s burst 5", "10/s burst 4", "10/s"], 1),
            (&["10/s; 1000/day", "1/s"], 0),
            (&["1/s", "1/s"], 0),
        ] {
            let all: Vec<Meters> = texts.iter().map(|text| meters(text)).collect();
            assert_eq!(strictest(all.iter()), Some(&all[expected]), "{texts:?}");
        }
    }
}
