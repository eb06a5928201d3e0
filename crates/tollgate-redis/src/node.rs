//! One server: its connections, and the questions on their way to it.
//!
//! ```text
//! ask ──┬─ no link ──────────▶ fails at once, with the reason the last one was lost for
//!       ├─ few calls out ────▶ a call of its own, in the caller's task
//!       └─ enough out ───────▶ waits ──▶ the next call that comes back takes all who wait along
//! ```
//!
//! **The breaker** is nothing but the links: it is open while none is up. A link on which a call was
//! lost or late is dropped at once, never used again and replaced by its keeper (`node/keeper.rs`)
//! once the server proves to be well. So no caller waits for a server that is known to be down, a
//! connection that is half open is noticed by the first call it swallows, and one slow reply does
//! not close the door while other links work.
//!
//! **Batches** need no timer. When the server is idle a question goes out by itself, at once. While
//! [`CALLS_PER_LINK`] calls per link are out, questions gather, and what has gathered when a call
//! comes back goes out together. The busier, the larger the batches.
//!
//! **Nothing is lost with a caller.** A call whose caller has gone is finished by a task of its own,
//! for it still counts as out; a question whose caller has gone while it waited is not sent.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use tollgate::Timestamp;

use crate::answer::Answer;
use crate::failure::Failure;
use crate::question::Question;
use crate::shared::{Permit, Shared};
use crate::topology::{Cluster, Locator};

mod call;
mod keeper;

pub(crate) use call::Call;

/// Calls a link may have out before questions gather. Two keep the server busy while the replies of
/// one are given out.
const CALLS_PER_LINK: usize = 2;

/// The most sets in one call. A larger call would only make others wait longer for their turn.
const BATCH: usize = 128;

/// What a set was answered: when, by the server's clock, and what.
pub(crate) type Reply = Result<(Timestamp, Answer), Failure>;

/// A server and the way to it.
pub(crate) struct Node {
    pub(crate) shared: Arc<Shared>,
    locator: Locator,
    // Where redirections lead; nowhere outside a cluster.
    cluster: Weak<Cluster>,
    state: Mutex<State>,
    // A link came up, or the first attempt failed.
    settled: Notify,
    // Dropped, and so ended, with the node.
    keepers: Mutex<JoinSet<()>>,
}

struct State {
    links: SmallVec<[Link; 4]>,
    // Links are used in turn.
    turn: usize,
    // Tells links apart.
    next_link: u64,
    // Why there is no link; absent while the very first attempt is under way.
    trouble: Option<Failure>,
    waiting: VecDeque<Waiting>,
    out: usize,
}

/// A connection that works, as far as is known.
#[derive(Clone)]
pub(crate) struct Link {
    id: u64,
    connection: MultiplexedConnection,
    // Told when the link is given up.
    lost: Arc<Notify>,
}

/// A question that waits for a call to join.
struct Waiting {
    question: Question,
    slot: Option<u16>,
    caller: oneshot::Sender<Reply>,
    // Given back when the question has been answered or dropped, not when its caller leaves.
    permit: Permit,
}

/// An answer that is on its way.
pub(crate) enum Pending {
    /// This caller's own call.
    Own(Own),
    /// The call of whoever takes the question along.
    Joined(oneshot::Receiver<Reply>),
    /// There will be none.
    Failed(Failure),
}

impl Node {
    /// A node whose keepers start to connect at once.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        locator: Locator,
        cluster: &Weak<Cluster>,
    ) -> Arc<Self> {
        let node = Arc::new(Self {
            shared: Arc::clone(shared),
            locator,
            cluster: Weak::clone(cluster),
            state: Mutex::new(State {
                links: SmallVec::new(),
                turn: 0,
                next_link: 0,
                trouble: None,
                waiting: VecDeque::new(),
                out: 0,
            }),
            settled: Notify::new(),
            keepers: Mutex::new(JoinSet::new()),
        });
        let mut keepers = node.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..shared.connections {
            keepers.spawn_on(keeper::keep(Arc::downgrade(&node)), &shared.runtime);
        }
        drop(keepers);
        node
    }

    /// Puts a question, by itself if few calls are out; without an answer until `lost` it counts as
    /// lost.
    pub(crate) fn ask(
        self: &Arc<Self>,
        question: Question,
        slot: Option<u16>,
        permit: Permit,
        lost: Instant,
    ) -> Pending {
        let mut state = self.lock();
        match self.may_call(&mut state) {
            Some(link) if state.waiting.is_empty() => {
                state.out += 1;
                drop(state);
                Pending::Own(Own::new(Place::new(self), link, question, permit, lost))
            }
            _ => self.wait(&mut state, question, slot, permit),
        }
    }

    /// Puts a question that others follow, so that all go together; [`Node::go`] sends them off.
    pub(crate) fn gather(&self, question: Question, slot: Option<u16>, permit: Permit) -> Pending {
        self.wait(&mut self.lock(), question, slot, permit)
    }

    /// Sends off what has gathered, if few calls are out.
    pub(crate) fn go(self: &Arc<Self>) {
        while self.claim() {
            Place::new(self).pass_on();
        }
    }

    /// Claims a place for one more call, if so many wait that those out will not take them all.
    fn claim(&self) -> bool {
        let mut state = self.lock();
        let due = state.waiting.len() > state.out * BATCH && self.may_call(&mut state).is_some();
        state.out += usize::from(due);
        due
    }

    /// Whether a link is up. Until the first attempt has ended it counts as up.
    pub(crate) fn is_up(&self) -> bool {
        let state = self.lock();
        !state.links.is_empty() || state.trouble.is_none()
    }

    /// A link, as soon as there is one.
    pub(crate) async fn link(&self, deadline: Instant) -> Result<Link, Failure> {
        loop {
            // Asked for before looking, lest it be missed between.
            let settled = self.settled.notified();
            {
                let mut state = self.lock();
                if let Some(link) = state.next_link() {
                    return Ok(link);
                }
                if let Some(trouble) = &state.trouble {
                    return Err(trouble.clone());
                }
            }
            if timeout_at(deadline.into(), settled).await.is_err() {
                return Err(Failure::timeout());
            }
        }
    }

    /// The cluster this node is part of.
    pub(crate) fn cluster(&self) -> Option<Arc<Cluster>> {
        self.cluster.upgrade()
    }

    fn wait(
        &self,
        state: &mut State,
        question: Question,
        slot: Option<u16>,
        permit: Permit,
    ) -> Pending {
        if let (true, Some(trouble)) = (state.links.is_empty(), &state.trouble) {
            return Pending::Failed(trouble.clone());
        }
        let (caller, answer) = oneshot::channel();
        state.waiting.push_back(Waiting { question, slot, caller, permit });
        Pending::Joined(answer)
    }

    /// The link of a call that may go out now.
    fn may_call(&self, state: &mut State) -> Option<Link> {
        let room = state.out < self.shared.connections * CALLS_PER_LINK;
        room.then(|| state.next_link()).flatten()
    }

    /// Takes a connection into use.
    fn adopt(self: &Arc<Self>, connection: MultiplexedConnection) -> Link {
        let link = {
            let mut state = self.lock();
            let link = Link { id: state.next_link, connection, lost: Arc::default() };
            state.next_link += 1;
            if state.links.is_empty() && state.trouble.take().is_some() {
                self.shared.logbook.reached(&self.locator);
            }
            state.links.push(link.clone());
            link
        };
        self.settled.notify_waiters();
        self.go();
        link
    }

    /// Gives a link up; it failed or was late.
    fn lose(&self, link: &Link, failure: &Failure) {
        self.lose_where(failure, |known| known.id == link.id);
    }

    /// Gives every link up: the server itself is not fit.
    fn lose_all(&self, failure: &Failure) {
        self.lose_where(failure, |_| true);
    }

    fn lose_where(&self, failure: &Failure, concerned: impl Fn(&Link) -> bool) {
        let stranded = {
            let mut state = self.lock();
            let before = state.links.len();
            state.links.retain(|link| {
                let concerned = concerned(link);
                if concerned {
                    link.lost.notify_one();
                }
                !concerned
            });
            match state.links.is_empty() && before > 0 {
                true => self.down(&mut state, failure),
                false => return,
            }
        };
        fail(stranded, &failure.lasting());
    }

    /// Notes that an attempt to connect failed.
    fn missed(&self, failure: &Failure) {
        let stranded = {
            let mut state = self.lock();
            match state.links.is_empty() {
                true => self.down(&mut state, failure),
                false => return,
            }
        };
        fail(stranded, &failure.lasting());
    }

    /// Opens the breaker, and hands over those who wait in vain.
    fn down(&self, state: &mut State, failure: &Failure) -> VecDeque<Waiting> {
        if state.trouble.is_none() {
            self.shared.logbook.lost(&self.locator, failure);
        }
        state.trouble = Some(failure.lasting());
        self.settled.notify_waiters();
        if let Some(cluster) = self.cluster() {
            cluster.suspect();
        }
        std::mem::take(&mut state.waiting)
    }

    /// The next call of those that wait.
    fn next_batch(&self) -> Option<(Link, Vec<Waiting>)> {
        let mut state = self.lock();
        let link = state.next_link()?;
        let mut batch = Vec::with_capacity(state.waiting.len().min(BATCH));
        while batch.len() < BATCH {
            let Some(waiting) = state.waiting.pop_front() else { break };
            // Nobody is there to be answered; not asking charges nobody.
            if !waiting.caller.is_closed() {
                batch.push(waiting);
            }
        }
        (!batch.is_empty()).then_some((link, batch))
    }

    /// Nothing panics while holding the lock but where memory is exhausted.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_link(&mut self) -> Option<Link> {
        self.turn = self.turn.wrapping_add(1);
        let place = self.turn.checked_rem(self.links.len())?;
        self.links.get(place).cloned()
    }
}

/// Tells those who wait in vain why.
fn fail(stranded: VecDeque<Waiting>, failure: &Failure) {
    for waiting in stranded {
        // A caller that has left needs no answer.
        let _ = waiting.caller.send(Err(failure.clone()));
    }
}

/// A call's place among those that may be out. When it is given up, those who wait get it.
struct Place {
    node: Arc<Node>,
    // Handed to a task that has not run yet. One that never does, because its runtime is shutting
    // down, must not hand it to the next.
    on_its_way: bool,
}

impl Place {
    /// A place that was counted already.
    fn new(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node), on_its_way: false }
    }

    /// Hands the place to those who wait.
    fn pass_on(mut self) {
        self.on_its_way = true;
        let runtime = self.node.shared.runtime.clone();
        runtime.spawn(pump(self));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut state = self.node.lock();
            if self.on_its_way || state.waiting.is_empty() || state.links.is_empty() {
                state.out -= 1;
                return;
            }
        }
        Self::new(&self.node).pass_on();
    }
}

/// Sends off what has gathered, until nothing has.
async fn pump(mut place: Place) {
    place.on_its_way = false;
    while let Some((link, batch)) = place.node.next_batch() {
        deliver(&place.node, link, batch).await;
    }
}

/// Asks what waits, in as few calls as its slots allow, and gives the answers out.
async fn deliver(node: &Arc<Node>, link: Link, mut batch: Vec<Waiting>) {
    let deadline = Instant::now() + node.shared.deadline;
    // Outside a cluster there are no slots, and all go in one call. In order, for sets that were put
    // one after the other are decided so.
    batch.sort_by_key(|waiting| waiting.slot);
    let mut groups = Vec::new();
    while let Some(last) = batch.last() {
        let slot = last.slot;
        groups.push(batch.split_off(batch.partition_point(|waiting| waiting.slot < slot)));
    }
    let calls = groups.into_iter().map(|group| call_for(node, link.clone(), group, deadline));
    join_all(calls).await;
}

async fn call_for(node: &Arc<Node>, link: Link, group: Vec<Waiting>, deadline: Instant) {
    let mut questions = Vec::with_capacity(group.len());
    let mut callers = Vec::with_capacity(group.len());
    for Waiting { question, caller, permit, .. } in group {
        questions.push(question);
        callers.push((caller, permit));
    }
    let replies = Call { questions: &questions, deadline }.run(node, link).await;
    for ((caller, _), reply) in callers.into_iter().zip(replies) {
        // A caller that has left needs no answer.
        let _ = caller.send(reply);
    }
}

type OwnCall = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A caller's own call. It is finished even if the caller leaves, for until then it is out.
pub(crate) struct Own {
    call: Option<OwnCall>,
    lost: Instant,
    shared: Arc<Shared>,
}

impl Own {
    fn new(place: Place, link: Link, question: Question, permit: Permit, lost: Instant) -> Self {
        let shared = Arc::clone(&place.node.shared);
        let call = async move {
            let questions = std::slice::from_ref(&question);
            let mut replies = Call { questions, deadline: lost }.run(&place.node, link).await;
            drop((permit, place));
            replies.pop().unwrap_or_else(|| Err(Failure::protocol("no answer to a question")))
        };
        Self { call: Some(Box::pin(call)), lost, shared }
    }
}

impl Future for Own {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let Some(call) = self.call.as_mut() else {
            return Poll::Ready(Err(Failure::protocol("asked for an answer twice")));
        };
        let reply = ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(reply)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.shared.runtime.spawn(call);
        }
    }
}

impl Pending {
    /// The answer, or none before `deadline`.
    pub(crate) async fn reply(self, deadline: Instant) -> Reply {
        match self {
            // It ends by itself then.
            Self::Own(call) if call.lost <= deadline => call.await,
            Self::Own(call) => {
                let reply = timeout_at(deadline.into(), call).await;
                reply.unwrap_or_else(|_| Err(Failure::timeout()))
            }
            Self::Failed(failure) => Err(failure),
            Self::Joined(answer) => match timeout_at(deadline.into(), answer).await {
                Ok(Ok(reply)) => reply,
                // Dropped without an answer: the runtime is shutting down.
                Ok(Err(_)) => Err(Failure::unavailable("the store is shutting down")),
                Err(_) => Err(Failure::timeout()),
            },
        }
    }
}
