//! The store: from sets of charges to questions, and from answers to decisions.

use std::error::Error;
use std::fmt;
use std::future::{poll_fn, ready};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use futures_util::future::{Either, join_all};
use smallvec::smallvec;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tollgate::clock::monotonic;
use tollgate::store::Answers;
use tollgate::{Charge, ChargeSet, Decision, Micros, Op, Prefix, Store, StoreError};

use crate::answer::decision;
use crate::connect::Connector;
use crate::denials::Denials;
use crate::failure::Failure;
use crate::node::{Asked, Node, Pending, Reply};
use crate::question::Question;
use crate::shared::{Logbook, Permit, Shared};
use crate::spread::Spread;
use crate::stats::{Counters, Stats};
use crate::topology::Topology;
use crate::url::{RedisUrl, UrlError};

/// Nobody waits longer for a decision.
const LONGEST_DEADLINE: Duration = Duration::from_secs(3_600);

/// More refusals than that are not remembered: they are over within a second.
const MOST_DENIALS: usize = 1 << 24;

/// Buckets in Redis, shared by all who use the same server and prefix.
///
/// Cheap to clone; clones share everything. Connections are opened in the background and closed when
/// the last clone is dropped.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
    // Never longer than that of the whole.
    deadline: Duration,
}

/// What a [`RedisStore`] is built with.
#[derive(Clone, Debug)]
pub struct RedisStoreBuilder {
    url: RedisUrl,
    prefix: Prefix,
    deadline: Duration,
    connections: usize,
    max_in_flight: usize,
    deny_cache: usize,
}

impl RedisStoreBuilder {
    /// How long a decision may take, everything included: waiting, connecting, redirections. 50 ms
    /// unless told otherwise. When it is over the answer is
    /// [`Timeout`](tollgate::StoreErrorKind::Timeout), and the charge may have been made. An hour at most.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: deadline.min(LONGEST_DEADLINE), ..self }
    }

    /// What the names of all keys begin with; `tollgate` unless told otherwise.
    pub fn prefix(self, prefix: Prefix) -> Self {
        Self { prefix, ..self }
    }

    /// Connections to each server; 2 unless told otherwise, and at least 1.
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.clamp(1, 64), ..self }
    }

    /// The most sets under way at a time; 16,384 unless told otherwise. One more is answered with
    /// [`Overloaded`](tollgate::StoreErrorKind::Overloaded) at once.
    pub fn max_in_flight(self, max_in_flight: usize) -> Self {
        Self { max_in_flight: max_in_flight.max(1), ..self }
    }

    /// About how many refusals are remembered; 8,192 unless told otherwise, some 80 bytes each, and
    /// 0 for none. 16 million at most.
    pub fn deny_cache(self, entries: usize) -> Self {
        Self { deny_cache: entries.min(MOST_DENIALS), ..self }
    }

    /// Starts to connect, in the background, and does not wait for it: Redis may come later.
    ///
    /// Needs a tokio runtime with time and I/O to run in.
    pub fn build(self) -> Result<RedisStore, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError(Cause::NoRuntime))?;
        let connector =
            Connector::new(&self.url).map_err(|error| BuildError(Cause::File(error)))?;
        let shared = Arc::new(Shared {
            deadline: self.deadline,
            connections: self.connections,
            max_in_flight: self.max_in_flight,
            connector,
            counters: Counters::default(),
            logbook: Logbook::new(),
            runtime,
            seen: AtomicU64::new(0),
        });
        let topology = Topology::start(&self.url, &shared);
        let denials = (self.deny_cache > 0).then(|| Denials::new(self.deny_cache));
        let inner = Inner { shared, topology, prefix: self.prefix, denials };
        Ok(RedisStore { inner: Arc::new(inner), deadline: self.deadline })
    }
}

/// Why a store cannot be built.
#[derive(Debug)]
pub struct BuildError(Cause);

#[derive(Debug)]
enum Cause {
    NoRuntime,
    File(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::NoRuntime => f.write_str("find a tokio runtime to connect to Redis in"),
            Cause::File(error) => write!(f, "read a file the Redis URL names: {error}"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Cause::NoRuntime => None,
            Cause::File(error) => Some(error),
        }
    }
}

impl RedisStore {
    /// A store at a [URL](RedisUrl), with everything else as usual until told otherwise.
    pub fn builder(url: &str) -> Result<RedisStoreBuilder, UrlError> {
        Ok(RedisStoreBuilder {
            url: url.parse()?,
            prefix: Prefix::default(),
            deadline: Duration::from_millis(50),
            connections: 2,
            max_in_flight: 16_384,
            deny_cache: 8_192,
        })
    }

    /// The same store for callers in more of a hurry: their answers come within this deadline, if it
    /// is the shorter one. That a server is later than that does not yet make it count as down.
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        let deadline = deadline.min(self.inner.shared.deadline);
        Self { inner: Arc::clone(&self.inner), deadline }
    }

    /// Forgets what was refused, so that every key is asked for again: after limits have changed, or
    /// after somebody else has reset keys.
    pub fn forget_refusals(&self) {
        if let Some(denials) = &self.inner.denials {
            denials.clear_all();
        }
    }

    /// The numbers of this store since its start.
    pub fn stats(&self) -> Stats {
        let (servers, down) = self.inner.topology.servers();
        self.inner.shared.counters.snapshot(servers, down)
    }

    async fn ask(&self, sets: &[ChargeSet<'_>], span: Span) -> Answers {
        match sets {
            [set] => smallvec![self.decide_one(set).await],
            sets => self.ask_all(sets, span).await,
        }
    }

    async fn ask_all(&self, sets: &[ChargeSet<'_>], span: Span) -> Answers {
        let inner = &self.inner;
        let all = join_all(sets.iter().map(async |set| match inner.recall(set, span.mark) {
            Some(refusal) => Ok(refusal),
            None => inner.decide(set, span, Manner::Gathered).await,
        }));
        let mut all = pin!(all);
        // The first look at each gathers its question; then all go together.
        let answers = poll_fn(|cx| {
            let answers = all.as_mut().poll(cx);
            if answers.is_pending() {
                inner.topology.go();
            }
            answers
        });
        answers.await.into()
    }
}

impl Store for RedisStore {
    fn decide(&self, sets: &[ChargeSet<'_>]) -> impl Future<Output = Answers> + Send {
        Box::pin(self.ask(sets, Span::from(monotonic(), self.deadline)))
    }

    /// Ready at once if the refusal is remembered: whoever keeps asking for what is refused should
    /// cost as little as can be. Otherwise boxed: what asking takes is large, and would make the future
    /// of everybody who holds it as large.
    #[inline]
    fn decide_one(
        &self,
        set: &ChargeSet<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        let mark = monotonic();
        match self.inner.recall(set, mark) {
            Some(refusal) => Either::Left(ready(Ok(refusal))),
            None => {
                let span = Span::from(mark, self.deadline);
                Either::Right(Box::pin(self.inner.decide(set, span, Manner::Alone)))
            }
        }
    }

    #[inline(always)]
    fn recall(&self, charge: &Charge<'_>) -> Option<Decision> {
        let refusal = self.inner.denials.as_ref()?.find_one(charge, monotonic())?;
        self.inner.shared.counters.count_remembered();
        Some(refusal)
    }

    fn forget_refusals(&self) {
        Self::forget_refusals(self);
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// When a question was put, and how long its caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) sent: Instant,
    /// The same by the clock refusals are remembered by, or a little before.
    pub(crate) mark: Micros,
    pub(crate) deadline: Duration,
}

impl Span {
    /// From now on, which is just after `mark`.
    pub(crate) fn from(mark: Micros, deadline: Duration) -> Self {
        Self { sent: Instant::now(), mark, deadline }
    }

    pub(crate) fn end(self) -> Instant {
        self.sent + self.deadline
    }
}

/// Whether a question goes by itself if it can, or waits for those that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Alone,
    Gathered,
}

/// How long to wait before a question is put again while keys are on their way between servers.
const PAUSE: Duration = Duration::from_millis(5);

/// How a question is put.
pub(crate) struct Terms {
    /// The slot of all its keys, in a cluster.
    pub(crate) slot: Option<u16>,
    pub(crate) span: Span,
    pub(crate) manner: Manner,
    /// The permit of the set it is a part of; one of its own otherwise.
    pub(crate) whole: Option<Arc<Permit>>,
}

/// A store's parts.
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    topology: Topology,
    prefix: Prefix,
    denials: Option<Denials>,
}

impl Inner {
    /// The refusal of a set that Redis refused a moment ago.
    #[inline]
    fn recall(&self, set: &ChargeSet<'_>, now: Micros) -> Option<Decision> {
        let refusal = self.denials.as_ref()?.find(set, now)?;
        self.shared.counters.count_remembered();
        Some(refusal)
    }

    async fn decide(
        self: &Arc<Self>,
        set: &ChargeSet<'_>,
        span: Span,
        manner: Manner,
    ) -> Result<Decision, StoreError> {
        let answer = {
            // Cleared when the answer is there, and also if the caller leaves before.
            let _clearing = self.clearing(set);
            self.ask(set, span, manner).await
        };
        if let (Some(denials), Ok(decision)) = (&self.denials, &answer) {
            denials.learn(set, decision, span.mark);
        }
        let error = answer.as_ref().err().map(StoreError::kind);
        self.shared.counters.count_answer(error, span.sent.elapsed());
        answer
    }

    /// Asks Redis. All but the usual way is boxed.
    async fn ask(
        self: &Arc<Self>,
        set: &ChargeSet<'_>,
        span: Span,
        manner: Manner,
    ) -> Result<Decision, StoreError> {
        let terms = Terms { slot: None, span, manner, whole: None };
        let question = self.question(set);
        let Topology::Single(node) = &self.topology else {
            return Box::pin(self.ask_cluster(set, question, terms)).await;
        };
        // Nothing is kept over the wait but what is on its way.
        let pending = hand_over(node, question, self.permit(&terms)?, &terms);
        let (at, answer) = pending.reply().await?;
        decision(set, at, &answer)
    }

    /// Asks a cluster, of one slot or of several.
    async fn ask_cluster(
        self: &Arc<Self>,
        set: &ChargeSet<'_>,
        question: Question,
        mut terms: Terms,
    ) -> Result<Decision, StoreError> {
        let mut slots = question.slots();
        let slot = slots.next().unwrap_or_default();
        if slots.any(|other| other != slot) {
            drop(slots);
            return Spread::new(self, set, &question, terms.span).decide().await;
        }
        drop(slots);
        terms.slot = Some(slot);
        self.put(set, question, terms).await
    }

    /// Puts one question about one slot, again if its keys are on their way between servers. It
    /// waits for them here and not where it was sent, lest others wait behind it.
    pub(crate) async fn put(
        &self,
        set: &ChargeSet<'_>,
        question: Question,
        mut terms: Terms,
    ) -> Result<Decision, StoreError> {
        let mut question = question;
        loop {
            match self.put_once(question, &terms).await {
                Ok((at, answer)) => return decision(set, at, &answer),
                Err(failure) if failure.passing && Instant::now() + PAUSE < terms.span.end() => {}
                Err(failure) => return Err(failure.into()),
            }
            sleep(PAUSE).await;
            question = self.question(set);
            // Those it came with have gone ahead.
            terms.manner = Manner::Alone;
        }
    }

    async fn put_once(&self, question: Question, terms: &Terms) -> Reply {
        let permit = self.permit(terms)?;
        let node = match &self.topology {
            Topology::Single(node) => Arc::clone(node),
            Topology::Cluster(cluster) => {
                cluster.owner(terms.slot.unwrap_or_default(), terms.span.end()).await?
            }
        };
        hand_over(&node, question, permit, terms).reply().await
    }

    /// Room for one more.
    fn permit(&self, terms: &Terms) -> Result<Permit, Failure> {
        match &terms.whole {
            Some(whole) => Ok(Permit::Part(Arc::clone(whole))),
            None => self.shared.permit().ok_or_else(Failure::overloaded),
        }
    }

    /// The question whether a set is admitted.
    pub(crate) fn question(&self, set: &ChargeSet<'_>) -> Question {
        Question::new(&self.prefix, set, self.shared.about())
    }

    /// Forgets refusals of the buckets a set gives back to or resets, when dropped.
    pub(crate) fn clearing<'s, 'k>(&'s self, set: &'s ChargeSet<'k>) -> Option<Clearing<'s, 'k>> {
        let denials = self.denials.as_ref()?;
        let changes = |op: &Op| matches!(op, Op::Refund { .. } | Op::Reset);
        let concerned = set.charges().iter().any(|charge| changes(&charge.op));
        concerned.then_some(Clearing { denials, set })
    }
}

/// Hands a question to the server it goes to.
fn hand_over(node: &Arc<Node>, question: Question, permit: Permit, terms: &Terms) -> Pending {
    let asked = Asked { question, slot: terms.slot, permit, end: terms.span.end() };
    match terms.manner {
        Manner::Alone => node.ask(asked),
        Manner::Gathered => node.gather(asked),
    }
}

/// Forgets refusals when dropped.
pub(crate) struct Clearing<'s, 'k> {
    denials: &'s Denials,
    set: &'s ChargeSet<'k>,
}

impl Drop for Clearing<'_, '_> {
    fn drop(&mut self) {
        self.denials.clear(self.set);
    }
}
