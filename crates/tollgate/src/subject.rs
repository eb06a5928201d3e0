//! What a front end says of a request: who and what it is, and what it costs.

use smallvec::{Array, SmallVec};

use crate::charge::Cost;

/// What is known of a request: a value per axis (`ip`, `user`, `tenant`, `route`, …).
///
/// Axes are names that front ends and policies agree on; an axis nobody's rule speaks of costs
/// nothing. An axis that is not there is *missing*, which is not the same as an empty value.
///
/// ```
/// use tollgate::Subject;
///
/// let subject = Subject::new().with("ip", "192.0.2.7").with("route", "/api/search");
/// assert_eq!(subject.value("ip"), Some("192.0.2.7"));
/// assert_eq!(subject.value("user"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject<'a> {
    // Few enough that looking through them beats any index, and none touches the heap.
    values: SmallVec<[(&'a str, &'a str); 8]>,
}

impl<'a> Subject<'a> {
    /// A subject of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same subject with `value` on `axis`, instead of any it had there.
    pub fn with(mut self, axis: &'a str, value: &'a str) -> Self {
        self.set(axis, value);
        self
    }

    /// Puts `value` on `axis`, instead of any there.
    #[inline]
    pub fn set(&mut self, axis: &'a str, value: &'a str) {
        replace(&mut self.values, axis, value);
    }

    /// The value on `axis`.
    #[inline]
    pub fn value(&self, axis: &str) -> Option<&'a str> {
        find(&self.values, axis)
    }

    /// The value on an axis, by the bytes of its name.
    #[inline]
    pub(crate) fn value_of(&self, axis: &[u8]) -> Option<&'a str> {
        let found = self.values.iter().find(|(known, _)| is_same(known.as_bytes(), axis));
        found.map(|(_, value)| *value)
    }

    /// All axes with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.values.iter().copied()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Subject<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(values: I) -> Self {
        let mut subject = Self::new();
        subject.extend(values);
        subject
    }
}

impl<'a> Extend<(&'a str, &'a str)> for Subject<'a> {
    fn extend<I: IntoIterator<Item = (&'a str, &'a str)>>(&mut self, values: I) {
        for (axis, value) in values {
            self.set(axis, value);
        }
    }
}

/// What a request costs, unit by unit.
///
/// It costs one `requests` unless told otherwise. Rules charge in a [unit](crate::Rule::unit) of
/// their own, and one whose unit is not among the costs does not apply.
///
/// ```
/// use tollgate::{Cost, Costs};
///
/// let costs = Costs::default().with("tokens", Cost::new(1_200).unwrap());
/// assert_eq!(costs.of("requests"), Some(Cost::ONE));
/// assert_eq!(costs.of("tokens").map(Cost::get), Some(1_200));
/// assert_eq!(costs.of("cents"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs<'a> {
    // Apart, for most requests cost one of these and nothing else.
    requests: Option<Cost>,
    others: SmallVec<[(&'a str, Cost); 3]>,
}

impl<'a> Costs<'a> {
    /// The unit every rule charges in that names no other.
    pub const REQUESTS: &'static str = "requests";

    /// Nothing in any unit: what a request turned out to cost that shall not count.
    pub fn none() -> Self {
        Self { requests: None, others: SmallVec::new() }
    }

    /// So many requests.
    #[inline]
    pub fn requests(cost: Cost) -> Self {
        Self { requests: Some(cost), others: SmallVec::new() }
    }

    /// So many of one unit and nothing else, not even a request: what a finished call turned out to
    /// cost beyond its estimate, say.
    pub fn only(unit: &'a str, cost: Cost) -> Self {
        Self::none().with(unit, cost)
    }

    /// The same costs with `cost` in `unit`, instead of any there was.
    pub fn with(mut self, unit: &'a str, cost: Cost) -> Self {
        match unit == Self::REQUESTS {
            true => self.requests = Some(cost),
            false => replace(&mut self.others, unit, cost),
        }
        self
    }

    /// The cost in `unit`.
    #[inline]
    pub fn of(&self, unit: &str) -> Option<Cost> {
        match unit == Self::REQUESTS {
            true => self.requests,
            false => find(&self.others, unit),
        }
    }

    /// All units with their costs, requests first.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Cost)> + '_ {
        let requests = self.requests.map(|cost| (Self::REQUESTS, cost));
        requests.into_iter().chain(self.others.iter().copied())
    }
}

impl Default for Costs<'_> {
    /// One request.
    #[inline]
    fn default() -> Self {
        Self::requests(Cost::ONE)
    }
}

#[inline]
fn find<V: Copy>(pairs: &[(&str, V)], name: &str) -> Option<V> {
    let found = pairs.iter().find(|(known, _)| is_same(known.as_bytes(), name.as_bytes()));
    found.map(|(_, value)| *value)
}

/// Whether two names are the same. They are a few letters, over before a function is called that
/// compares many at a time.
#[inline]
fn is_same(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().eq(two)
}

#[inline]
fn replace<'a, V, A: Array<Item = (&'a str, V)>>(pairs: &mut SmallVec<A>, name: &'a str, value: V) {
    match pairs.iter_mut().find(|(known, _)| is_same(known.as_bytes(), name.as_bytes())) {
        Some((_, known)) => *known = value,
        None => pairs.push((name, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_axis_replaces() {
        let subject = Subject::from_iter([("ip", "a"), ("user", "b"), ("ip", "c")]);
        assert_eq!(subject.iter().collect::<Vec<_>>(), [("ip", "c"), ("user", "b")]);
    }

    #[test]
    fn an_empty_value_is_a_value() {
        assert_eq!(Subject::new().with("user", "").value("user"), Some(""));
    }

    #[test]
    fn a_repeated_unit_replaces_and_requests_can_be_left_out() {
        let two = Cost::new(2).unwrap();
        assert_eq!(Costs::default().with("requests", two), Costs::requests(two));
        assert_eq!(Costs::only("tokens", two).of(Costs::REQUESTS), None);
    }
}
