//! A policy while it is written.

use super::list::Entry;
use super::rule::{Override, Rule};
use super::{Policy, PolicyErrors, compile};
use crate::digest::Digester;

/// A policy while it is written. Nothing is checked before [`build`](PolicyBuilder::build).
#[derive(Clone, Debug, Default)]
pub struct PolicyBuilder {
    pub(super) version: u64,
    pub(super) rules: Vec<Rule>,
    pub(super) overrides: Vec<Override>,
    pub(super) allow: Vec<Entry>,
    pub(super) deny: Vec<Entry>,
    pub(super) digester: Digester,
}

impl PolicyBuilder {
    /// Adds a rule. Order matters only for which of equals is said to have decided.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds another quota for some subjects of a rule; of several that match, the first counts.
    pub fn overriding(mut self, exception: Override) -> Self {
        self.overrides.push(exception);
        self
    }

    /// Lets through, uncounted, whoever's value on `axis` matches the [glob](super::Glob) `pattern`.
    pub fn allow(mut self, axis: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.allow.push(value(axis, pattern));
        self
    }

    /// Lets through, uncounted, whoever's address on `axis` lies in a [network](super::Network).
    pub fn allow_network(mut self, axis: impl Into<String>, network: impl Into<String>) -> Self {
        self.allow.push(addresses(axis, network));
        self
    }

    /// Refuses whoever's value on `axis` matches the [glob](super::Glob) `pattern`, on the allowlist
    /// or not.
    pub fn deny(mut self, axis: impl Into<String>, pattern: impl Into<String>) -> Self {
        self.deny.push(value(axis, pattern));
        self
    }

    /// Refuses whoever's address on `axis` lies in a [network](super::Network), on the allowlist or
    /// not.
    pub fn deny_network(mut self, axis: impl Into<String>, network: impl Into<String>) -> Self {
        self.deny.push(addresses(axis, network));
        self
    }

    /// Keys the [digests](crate::digest) of private and long values, so that nobody without the salt
    /// can find a value by guessing. Another salt means other buckets.
    pub fn salt(mut self, salt: impl AsRef<[u8]>) -> Self {
        self.digester = Digester::salted(salt.as_ref());
        self
    }

    /// Numbers the policy, for those who replace it and want to see which one decided; 0 unless told
    /// otherwise.
    pub fn version(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// The policy, or everything that is wrong with it.
    pub fn build(self) -> Result<Policy, PolicyErrors> {
        compile::compile(self)
    }
}

fn value(axis: impl Into<String>, pattern: impl Into<String>) -> Entry {
    Entry::Value { axis: axis.into(), pattern: pattern.into() }
}

fn addresses(axis: impl Into<String>, network: impl Into<String>) -> Entry {
    Entry::Network { axis: axis.into(), network: network.into() }
}
