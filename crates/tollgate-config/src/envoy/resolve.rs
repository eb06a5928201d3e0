//! From a request's descriptors to charges.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate::digest::Digest;
use tollgate::{
    Algorithm, Ask, Charge, ChargeSet, ChargeSetError, Cost, Enforcement, Key, KeyPart, Op,
    Timestamp,
};

use super::{DescriptorNode, Domains, Level, Limit, Rate};

/// Values longer than this stand in keys as digests, as in a policy's.
const LONGEST_PLAIN_VALUE: usize = 128;

/// The group of all limits in quota mode: one of a request that has room is enough.
const QUOTA_GROUP: u8 = 0;

/// What a request says of itself once.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// Keys and values, outermost first.
    pub entries: &'a [(&'a str, &'a str)],
    /// A limit the request brings along, which counts instead of the file's.
    pub limit: Option<Rate>,
    /// What to do.
    pub hits: Hits,
}

/// What a descriptor does to its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// Takes so many.
    Take(Cost),
    /// Looks whether so many would fit.
    Peek(Cost),
    /// Gives back what was taken at an instant of the store's clock.
    Refund {
        /// How many.
        cost: Cost,
        /// When they were taken.
        at: Timestamp,
    },
}

impl From<Hits> for Op {
    fn from(hits: Hits) -> Self {
        match hits {
            Hits::Take(cost) => Self::Take(Ask::exactly(cost)),
            Hits::Peek(cost) => Self::Peek(cost),
            Hits::Refund { cost, at } => Self::Refund { cost, at },
        }
    }
}

/// What a request's descriptors come to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Charges {
    /// What to ask a store, all or nothing.
    pub set: ChargeSet<'static>,
    /// What became of each descriptor, in their order.
    pub matches: Vec<Match>,
}

impl Charges {
    /// Whether the request is refused whatever the store says: a limit of zero applies, or of those in
    /// quota mode all are zero.
    pub fn is_refused(&self) -> bool {
        let quotas = self.matches.iter().filter(|found| {
            let limit = found.limit.as_ref();
            let counts = matches!(found.effect, Effect::Charge(_) | Effect::WouldRefuse);
            counts && limit.is_some_and(|limit| limit.quota_mode && !limit.shadow_mode)
        });
        let mut quotas = quotas.peekable();
        let exhausted =
            quotas.peek().is_some() && quotas.all(|found| found.effect == Effect::WouldRefuse);
        exhausted || self.matches.iter().any(|found| found.effect == Effect::Refuse)
    }
}

/// What became of one descriptor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Match {
    /// The limit it met, if it met one.
    pub limit: Option<Arc<Limit>>,
    /// What that means.
    pub effect: Effect,
    /// What metrics call it: without values of the client, except where the file asks for them.
    pub metric: Option<String>,
}

/// What a descriptor's limit means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Nothing: no limit was found.
    Nothing,
    /// Nothing: the limit is unlimited.
    Unlimited,
    /// Nothing: another limit of the request stands in for it.
    Replaced,
    /// The limit is zero, and refuses.
    Refuse,
    /// The limit is zero, in shadow mode or with others that may have room: it would have refused.
    WouldRefuse,
    /// It is charged, and this outcome of the decision is its own.
    Charge(usize),
}

/// How one entry of a descriptor fared, for those who ask why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The entry's key.
    pub key: &'a str,
    /// The entry's value.
    pub value: &'a str,
    /// How it was found.
    pub via: Via,
}

/// How an entry was found at its level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// By key and value.
    Value,
    /// By a pattern.
    Pattern(String),
    /// By its key alone.
    Key,
    /// Not at all.
    Nothing,
}

/// A way down the tree.
struct Walk<'d, 'a> {
    steps: Vec<(Step<'a>, Option<&'d DescriptorNode>)>,
    limit: Option<&'d Arc<Limit>>,
}

impl Domains {
    /// The charges of a request. An unknown domain has no limits.
    ///
    /// Fails only if the descriptors meet more limits than one set holds.
    pub fn resolve(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
    ) -> Result<Charges, ChargeSetError> {
        let met: Vec<Met<'_>> = descriptors.iter().map(|one| self.meet(domain, one)).collect();
        let limits = met.iter().filter_map(|met| met.limit.as_ref());
        let replaced: HashSet<String> =
            limits.flat_map(|limit| limit.replaces.iter().cloned()).collect();
        let mut set = ChargeSet::new();
        let mut matches = Vec::with_capacity(met.len());
        for (met, descriptor) in met.into_iter().zip(descriptors) {
            let effect = match &met.limit {
                None => Effect::Nothing,
                Some(limit) if limit.rate.is_none() => Effect::Unlimited,
                Some(limit) if !limit.name.is_empty() && replaced.contains(&limit.name) => {
                    Effect::Replaced
                }
                Some(limit) => self.charge(domain, limit, &met, descriptor, &mut set)?,
            };
            matches.push(Match { metric: met.metric(domain), limit: met.limit, effect });
        }
        Ok(Charges { set, matches })
    }

    /// How a list of entries fares, level by level, and the limit it ends at.
    pub fn explain<'a>(
        &self,
        domain: &str,
        entries: &[(&'a str, &'a str)],
    ) -> (Vec<Step<'a>>, Option<Arc<Limit>>) {
        let Some(level) = self.named.get(domain) else { return (Vec::new(), None) };
        let walk = walk(level, entries);
        (walk.steps.into_iter().map(|(step, _)| step).collect(), walk.limit.cloned())
    }

    /// The limit of a descriptor: its own, or the file's.
    fn meet<'a>(&self, domain: &str, descriptor: &Descriptor<'a>) -> Met<'a> {
        let Some(level) = self.named.get(domain) else { return Met::nothing() };
        if let Some(rate) = descriptor.limit {
            return Met::own(domain, descriptor, rate);
        }
        let walk = walk(level, descriptor.entries);
        let shared = |step: &Step<'_>, node: &DescriptorNode| match &step.via {
            Via::Pattern(_) if node.share_threshold => Some(node.value.clone()),
            _ => None,
        };
        let parts = walk.steps.iter().map(|(step, node)| Part {
            key: step.key,
            value: step.value,
            shared: node.and_then(|node| shared(step, node)),
            via: step.via.clone(),
            value_to_metric: node.is_some_and(|node| node.value_to_metric),
        });
        Met { limit: walk.limit.cloned(), parts: parts.collect() }
    }

    /// Charges a limit that has a rate.
    fn charge(
        &self,
        domain: &str,
        limit: &Limit,
        met: &Met<'_>,
        descriptor: &Descriptor<'_>,
        set: &mut ChargeSet<'static>,
    ) -> Result<Effect, ChargeSetError> {
        let Some(rate) = limit.rate else { return Ok(Effect::Unlimited) };
        if rate.requests_per_unit == 0 {
            return Ok(match limit.shadow_mode || limit.quota_mode {
                true => Effect::WouldRefuse,
                false => Effect::Refuse,
            });
        }
        // A rate that came with the request may not fit; windows fit all that can be said.
        let meter = rate.meter(self.options.algorithm);
        let Some(meter) = meter.or_else(|| rate.meter(Algorithm::FixedWindow)) else {
            return Ok(Effect::Nothing);
        };
        let enforcement = match (limit.shadow_mode, limit.quota_mode) {
            (true, _) => Enforcement::Shadow,
            (false, true) => Enforcement::AnyOf(QUOTA_GROUP),
            (false, false) => Enforcement::Enforce,
        };
        let key = met.key(domain);
        let charge = Charge::new(key.clone(), meter, descriptor.hits.into()).enforced(enforcement);
        match set.push(charge) {
            Ok(outcome) => Ok(Effect::Charge(outcome)),
            Err(ChargeSetError::Conflict { .. }) => {
                // Two descriptors of one bucket that disagree on its limit: the first counts for both.
                let same =
                    |known: &Charge<'_>| known.key == key && known.meter.period() == meter.period();
                Ok(set.charges().iter().position(same).map_or(Effect::Nothing, Effect::Charge))
            }
            Err(error) => Err(error),
        }
    }
}

/// A descriptor with the limit it met.
struct Met<'a> {
    limit: Option<Arc<Limit>>,
    parts: Vec<Part<'a>>,
}

/// An entry of a descriptor that met a limit.
struct Part<'a> {
    key: &'a str,
    value: &'a str,
    /// The pattern all its matches share a bucket under.
    shared: Option<String>,
    via: Via,
    value_to_metric: bool,
}

impl<'a> Met<'a> {
    fn nothing() -> Self {
        Self { limit: None, parts: Vec::new() }
    }

    /// A limit the request brought along: it is enforced, whatever the file says.
    fn own(domain: &str, descriptor: &Descriptor<'a>, rate: Rate) -> Self {
        let entries = descriptor.entries.iter();
        let path =
            entries.clone().fold(domain.to_owned(), |path, (key, _)| format!("{path}.{key}"));
        let limit = Limit {
            path,
            name: String::new(),
            rate: Some(rate),
            replaces: Vec::new(),
            shadow_mode: false,
            quota_mode: false,
            detailed_metric: false,
            metadata: None,
        };
        let part = |(key, value): &(&'a str, &'a str)| Part {
            key,
            value,
            shared: None,
            via: Via::Key,
            value_to_metric: false,
        };
        Self { limit: Some(Arc::new(limit)), parts: entries.map(part).collect() }
    }

    /// The bucket's key: the domain and every entry with its value.
    fn key(&self, domain: &str) -> Key<'static> {
        let parts = self.parts.iter().map(|part| {
            let value = part.shared.as_deref().unwrap_or(part.value);
            let value = match value.len() > LONGEST_PLAIN_VALUE {
                true => KeyPart::Hashed(Digest::of_value(value)),
                false => KeyPart::Plain(value),
            };
            (part.key, value)
        });
        Key::of_rule(&format!("envoy/{domain}"), parts)
    }

    /// What metrics call it, as the reference does.
    fn metric(&self, domain: &str) -> Option<String> {
        let detailed = self.limit.as_ref()?.detailed_metric;
        let mut name = domain.to_owned();
        for part in &self.parts {
            let value = match (&part.shared, &part.via) {
                (Some(pattern), _) => pattern.as_str(),
                _ if detailed || part.value_to_metric => part.value,
                (None, Via::Value) => part.value,
                (None, Via::Pattern(pattern)) => pattern,
                (None, Via::Key | Via::Nothing) => "",
            };
            name.push('.');
            name.push_str(part.key);
            if !value.is_empty() {
                name.push('_');
                name.push_str(value);
            }
        }
        Some(name)
    }
}

/// Goes down from a level, entry by entry.
fn walk<'d, 'a>(level: &'d Level, entries: &[(&'a str, &'a str)]) -> Walk<'d, 'a> {
    let mut level = level;
    let mut walk = Walk { steps: Vec::with_capacity(entries.len()), limit: None };
    for (index, &(key, value)) in entries.iter().enumerate() {
        let found = level.find(key, value);
        let via = found.as_ref().map_or(Via::Nothing, |(_, via)| via.clone());
        let node = found.map(|(node, _)| node);
        walk.steps.push((Step { key, value, via }, node));
        let Some(node) = node else { break };
        if index + 1 == entries.len() {
            walk.limit = node.limit.as_ref();
        }
        level = &node.level;
    }
    walk
}

impl Level {
    /// The most specific descriptor for an entry.
    fn find(&self, key: &str, value: &str) -> Option<(&DescriptorNode, Via)> {
        let name = format!("{key}_{value}");
        if let Some(&place) = self.named.get(&name) {
            return Some((&self.nodes[place], Via::Value));
        }
        let wildcard = self.wildcards.iter().find(|(parts, _)| matches(parts, &name));
        if let Some((_, place)) = wildcard {
            let node = &self.nodes[*place];
            return Some((node, Via::Pattern(node.value.clone())));
        }
        self.named.get(key).map(|&place| (&self.nodes[place], Via::Key))
    }
}

/// Whether a text is made of parts with anything between them.
fn matches(parts: &[String], text: &str) -> bool {
    let [first, middle @ .., last] = parts else { return false };
    let Some(rest) = text.strip_prefix(first.as_str()) else { return false };
    let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
    for part in middle {
        match rest.find(part.as_str()) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}
