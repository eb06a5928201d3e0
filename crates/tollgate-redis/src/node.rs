//! One server: its connections, and the questions on their way to it.
//!
//! ```text
//! ask ──┬─ no link ──────────▶ fails at once, with the reason the last one was lost for
//!       ├─ few calls out ────▶ a call of its own, written to the socket by the caller
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
//! as many calls are out as there are links, questions gather, and what has gathered when a call
//! comes back goes out together. The busier, the larger the batches.
//!
//! **Deadlines** need no timer per caller either: one task looks after all of them
//! (`node/watch.rs`), and only who is in more of a hurry than it has one of their own.
//!
//! **Nothing is lost with a caller.** A call whose caller has gone is finished all the same, for it
//! still counts as out; a question whose caller has gone while it waited is not sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use tollgate::Timestamp;

use crate::answer::Answer;
use crate::failure::Failure;
use crate::question::Question;
use crate::shared::{Permit, Shared, Told};
use crate::topology::{Cluster, Locator};
use crate::wire::Wire;

mod call;
mod flight;
mod keeper;
mod pending;
mod watch;

pub(crate) use pending::Pending;

use flight::{Flight, Place};
use watch::Watch;

/// Calls that may be out before questions gather, where there are fewer links; otherwise one for each
/// link. Two keep the server busy while the replies of one are given out, and more make batches
/// smaller.
const LEAST_CALLS: usize = 2;

/// The most sets in one call, and the most charges: a set that begins below the bound is taken whole, so
/// there may be 15 more. The server does nothing else while it decides a call, which of so many takes it
/// a few milliseconds, ten if they are sliding logs; larger ones would hardly be cheaper.
const BATCH: usize = 256;
const BATCH_CHARGES: usize = 512;

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
    // Somebody asks again, after nobody had for a while.
    roused: Arc<Notify>,
    // Keepers and the watch. Dropped, and so ended, with the node.
    tasks: Mutex<JoinSet<()>>,
}

struct State {
    links: SmallVec<[Link; 4]>,
    // Links are used in turn.
    turn: usize,
    // Tells links apart.
    next_link: u64,
    // Why there is no link; absent while the very first attempt is under way.
    trouble: Option<Failure>,
    told: Told,
    waiting: VecDeque<Waiting>,
    // Places taken, each by one call, or in a cluster by one for each slot of a batch.
    out: usize,
    flights: Vec<Weak<Flight>>,
    watch: Watch,
}

/// A connection that works, as far as is known.
#[derive(Clone)]
pub(crate) struct Link {
    id: u64,
    wire: Wire,
    // Told when the link is given up.
    lost: Arc<Notify>,
}

/// A question that was put.
pub(crate) struct Asked {
    pub(crate) question: Question,
    /// The slot of all its keys, in a cluster.
    pub(crate) slot: Option<u16>,
    /// Given back when the question has been answered or dropped, not when its caller leaves.
    pub(crate) permit: Permit,
    /// When its caller has to have an answer.
    pub(crate) end: Instant,
}

/// A question that waits for a call to join.
struct Waiting {
    asked: Asked,
    caller: oneshot::Sender<Reply>,
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
                told: Told::default(),
                waiting: VecDeque::new(),
                out: 0,
                flights: Vec::new(),
                watch: Watch::Asleep,
            }),
            settled: Notify::new(),
            roused: Arc::default(),
            tasks: Mutex::new(JoinSet::new()),
        });
        let mut tasks = node.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..shared.connections {
            tasks.spawn_on(keeper::keep(Arc::downgrade(&node)), &shared.runtime);
        }
        let watch = watch::watch(Arc::downgrade(&node), Arc::clone(&node.roused));
        tasks.spawn_on(watch, &shared.runtime);
        drop(tasks);
        node
    }

    /// Puts a question, by itself if few calls are out.
    pub(crate) fn ask(self: &Arc<Self>, asked: Asked) -> Pending {
        let mut state = self.lock();
        let pending = self.wait(&mut state, asked);
        let alone = state.waiting.len() == 1;
        let flights = if alone { self.board(&mut state) } else { SmallVec::new() };
        drop(state);
        flights.into_iter().for_each(Flight::depart);
        pending
    }

    /// Puts a question that others follow, so that all go together; [`Node::go`] sends them off.
    pub(crate) fn gather(&self, asked: Asked) -> Pending {
        self.wait(&mut self.lock(), asked)
    }

    /// Sends off what has gathered, as far as those that are out will not take it all along.
    pub(crate) fn go(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            if state.will_take_all() {
                return;
            }
            let flights = self.board(&mut state);
            drop(state);
            if flights.is_empty() {
                return;
            }
            flights.into_iter().for_each(Flight::depart);
        }
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

    /// The host it is at, where only one is.
    pub(crate) fn host(&self) -> Option<&str> {
        self.locator.host()
    }

    /// Has a question wait for a call to join, or says why there will be none.
    fn wait(&self, state: &mut State, asked: Asked) -> Pending {
        if let (true, Some(trouble)) = (state.links.is_empty(), &state.trouble) {
            return Pending::Failed(trouble.clone());
        }
        let (caller, answer) = oneshot::channel();
        let end = asked.end;
        state.waiting.push_back(Waiting { asked, caller });
        match state.watch.sees(end, &self.roused) {
            true => Pending::Watched(answer),
            false => Pending::Hurried(answer, end),
        }
    }

    /// Has the first of those who wait board calls that may go out now: one call, or in a cluster one
    /// for each of their slots. Whoever gets them has to let them depart.
    fn board(self: &Arc<Self>, state: &mut State) -> SmallVec<[Arc<Flight>; 1]> {
        if state.out >= self.shared.connections.max(LEAST_CALLS) || state.waiting.is_empty() {
            return SmallVec::new();
        }
        let Some(link) = state.next_link() else { return SmallVec::new() };
        let now = Instant::now();
        let mut batch: SmallVec<[Waiting; 1]> = SmallVec::new();
        batch.reserve(state.waiting.len().min(BATCH));
        let mut charges = 0;
        while batch.len() < BATCH && charges < BATCH_CHARGES {
            let Some(waiting) = state.waiting.pop_front() else { break };
            // Nobody is there to be answered, or it is too late for an answer; not asking charges
            // nobody.
            if waiting.asked.end <= now {
                fail([waiting], &Failure::timeout());
            } else if !waiting.caller.is_closed() {
                charges += waiting.asked.question.len();
                batch.push(waiting);
            }
        }
        if batch.is_empty() {
            return SmallVec::new();
        }
        state.out += 1;
        let flights = flight::board(&Place::new(self), &link, batch, now);
        state.flights.extend(flights.iter().map(Arc::downgrade));
        flights
    }

    /// Takes a connection into use.
    fn adopt(self: &Arc<Self>, wire: Wire) -> Link {
        let link = {
            let mut state = self.lock();
            let link = Link { id: state.next_link, wire, lost: Arc::default() };
            state.next_link += 1;
            if state.links.is_empty() && state.trouble.take().is_some() {
                state.told = Told::default();
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
        state.told.tell(&self.shared.logbook, &self.locator, failure);
        state.trouble = Some(failure.lasting());
        self.settled.notify_waiters();
        if let Some(cluster) = self.cluster() {
            cluster.suspect();
        }
        std::mem::take(&mut state.waiting)
    }

    /// Nothing panics while holding the lock but where memory is exhausted.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether all who wait have room on the calls that follow those that are out.
    fn will_take_all(&self) -> bool {
        let charges = self.waiting.iter().map(|waiting| waiting.asked.question.len());
        self.waiting.len() <= self.out * BATCH && charges.sum::<usize>() <= self.out * BATCH_CHARGES
    }

    fn next_link(&mut self) -> Option<Link> {
        self.turn = self.turn.wrapping_add(1);
        let place = self.turn.checked_rem(self.links.len())?;
        self.links.get(place).cloned()
    }
}

/// Tells those who wait in vain why.
fn fail(stranded: impl IntoIterator<Item = Waiting>, failure: &Failure) {
    for waiting in stranded {
        // A caller that has left needs no answer.
        let _ = waiting.caller.send(Err(failure.clone()));
    }
}
