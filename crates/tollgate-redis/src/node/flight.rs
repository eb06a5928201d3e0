//! Calls that are out: who is on them, and where they land.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::call::{Call, Replies};
use super::{Link, Node, Reply, Waiting};
use crate::answer::{Verdicts, split};
use crate::failure::Failure;
use crate::question::Question;
use crate::script::{Form, ScriptClock, encode};
use crate::shared::Permit;
use crate::wire::Receiver;

/// A place among those that may be out. When it is given up, those who wait get it.
pub(super) struct Place(Arc<Node>);

impl Place {
    /// A place that was counted already.
    pub(super) fn new(node: &Arc<Node>) -> Arc<Self> {
        Arc::new(Self(Arc::clone(node)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let flights = {
            let mut state = self.0.lock();
            state.out -= 1;
            self.0.board(&mut state)
        };
        flights.into_iter().for_each(Flight::depart);
    }
}

/// A call that is out.
pub(super) struct Flight {
    node: Arc<Node>,
    questions: SmallVec<[Question; 1]>,
    deadline: Instant,
    // Until it has landed, or was given up.
    cargo: Mutex<Option<Cargo>>,
}

struct Cargo {
    // What it was sent on; absent once that answered, and the call went on elsewhere.
    link: Option<Link>,
    callers: SmallVec<[Caller; 1]>,
    // Kept only to be dropped. A batch for several slots has one place.
    _place: Arc<Place>,
}

/// Who waits for an answer.
struct Caller {
    // Absent once there was one.
    answer: Option<oneshot::Sender<Reply>>,
    end: Instant,
    _permit: Permit,
}

impl Caller {
    fn tell(&mut self, reply: Reply) {
        if let Some(answer) = self.answer.take() {
            // A caller that has left needs no answer.
            let _ = answer.send(reply);
        }
    }
}

/// Divides a batch among as few calls as its slots allow. Outside a cluster there are no slots, and all
/// go in one. In order, for sets that were put one after the other are decided so.
pub(super) fn board(
    place: &Arc<Place>,
    link: &Link,
    mut batch: SmallVec<[Waiting; 1]>,
    now: Instant,
) -> SmallVec<[Arc<Flight>; 1]> {
    let flight = |group| Arc::new(Flight::new(Arc::clone(place), link.clone(), group, now));
    let slot = batch.first().and_then(|waiting| waiting.asked.slot);
    if batch.iter().all(|waiting| waiting.asked.slot == slot) {
        return SmallVec::from_buf([flight(batch)]);
    }
    batch.sort_by_key(|waiting| waiting.asked.slot);
    let mut groups: Vec<SmallVec<[Waiting; 1]>> = Vec::new();
    for waiting in batch {
        match groups.last_mut() {
            Some(group) if group[0].asked.slot == waiting.asked.slot => group.push(waiting),
            _ => groups.push(SmallVec::from_buf([waiting])),
        }
    }
    groups.into_iter().map(flight).collect()
}

impl Flight {
    fn new(place: Arc<Place>, link: Link, group: SmallVec<[Waiting; 1]>, now: Instant) -> Self {
        let node = Arc::clone(&place.0);
        let mut questions = SmallVec::with_capacity(group.len());
        let mut callers = SmallVec::with_capacity(group.len());
        for Waiting { asked, caller } in group {
            questions.push(asked.question);
            callers.push(Caller { answer: Some(caller), end: asked.end, _permit: asked.permit });
        }
        let deadline = now + node.shared.deadline;
        let cargo = Mutex::new(Some(Cargo { link: Some(link), callers, _place: place }));
        Self { node, questions, deadline, cargo }
    }

    /// Sends the call off.
    pub(super) fn depart(self: Arc<Self>) {
        let Some(link) = self.with_cargo(|cargo| cargo.link.clone()) else { return };
        self.node.shared.counters.count_call();
        let command = encode(Form::Sha, ScriptClock::Server, &self.questions);
        let receiver: Box<dyn Receiver> = Box::new(Arc::clone(&self));
        if let Err(failure) = link.wire.send(&command, [receiver]) {
            self.crash(&failure);
        }
    }

    /// Tells those whose time is over, and gives the call up if its own is. The next instant at which
    /// somebody's is.
    pub(super) fn expire(&self, now: Instant) -> Option<Instant> {
        if self.deadline <= now {
            self.crash(&Failure::timeout());
            return None;
        }
        let mut cargo = self.cargo.lock().unwrap_or_else(PoisonError::into_inner);
        let callers = &mut cargo.as_mut()?.callers;
        for caller in callers.iter_mut().filter(|caller| caller.end <= now) {
            caller.tell(Err(Failure::timeout()));
        }
        let ends = callers.iter().filter(|caller| caller.answer.is_some()).map(|caller| caller.end);
        Some(ends.fold(self.deadline, Instant::min))
    }

    /// Gives the answers out, and the place to those who wait.
    fn land(&self, replies: impl IntoIterator<Item = Reply>) {
        let Some(mut cargo) = self.unload() else { return };
        for (caller, reply) in cargo.callers.iter_mut().zip(replies) {
            caller.tell(reply);
        }
    }

    /// The link broke, or time is over.
    fn crash(&self, failure: &Failure) {
        let Some(cargo) = self.unload() else { return };
        if let Some(link) = &cargo.link {
            self.node.lose(link, failure);
        }
        cargo.tell_all(failure);
    }

    /// Follows the call to wherever the server points, with those who still wait. Who was told that it is
    /// too late, or has left, is not asked for again.
    async fn go_on(self: Arc<Self>, link: Link, reply: Vec<u8>) {
        let waiting = self.waiting(&reply);
        let questions = self.questions.iter().zip(&waiting).filter(|(_, waits)| **waits);
        let questions: Vec<Question> = questions.map(|(question, _)| question.clone()).collect();
        let mut replies = Replies::new();
        if questions.is_empty() {
            // It concerns the next ones.
            self.node.heed_reply(&reply);
        } else {
            let call = Call { questions: &questions, deadline: self.deadline };
            replies = call.run(&self.node, link, Some(reply)).await;
        }
        let mut replies = replies.into_iter();
        let told = |waits: bool| waits.then(|| replies.next()).flatten();
        let told = waiting.into_iter().map(told);
        self.land(told.map(|reply| reply.unwrap_or_else(|| Err(Failure::timeout()))));
    }

    /// Of each question, whether it is to be asked again after this reply.
    fn waiting(&self, reply: &[u8]) -> Vec<bool> {
        let undecided = reply.starts_with(b"-")
            || matches!(split(reply, &self.questions), Ok(Verdicts::Elsewhen(_)));
        let now = Instant::now();
        let waits = |caller: &Caller| {
            // What is no answer is the same for all, and nobody is asked again.
            !undecided
                || caller.end > now
                    && caller.answer.as_ref().is_some_and(|answer| !answer.is_closed())
        };
        let waiting = self.with_cargo(|cargo| Some(cargo.callers.iter().map(waits).collect()));
        // The call was given up meanwhile.
        waiting.unwrap_or_default()
    }

    /// What `look` finds, if it has not landed yet.
    fn with_cargo<T>(&self, look: impl FnOnce(&mut Cargo) -> Option<T>) -> Option<T> {
        let mut cargo = self.cargo.lock().unwrap_or_else(PoisonError::into_inner);
        cargo.as_mut().and_then(look)
    }

    /// Who is on it, once.
    fn unload(&self) -> Option<Cargo> {
        let cargo = self.cargo.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let mut state = self.node.lock();
        if let Some(place) =
            state.flights.iter().position(|known| std::ptr::eq(known.as_ptr(), self))
        {
            state.flights.swap_remove(place);
        }
        Some(cargo)
    }
}

impl Cargo {
    fn tell_all(mut self, failure: &Failure) {
        for caller in &mut self.callers {
            caller.tell(Err(failure.clone()));
        }
    }
}

impl Receiver for Arc<Flight> {
    fn receive(self: Box<Self>, reply: Result<&[u8], Failure>) {
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => return self.crash(&failure),
        };
        if let Ok(Verdicts::Decided(at, answers)) = split(reply, &self.questions) {
            self.node.shared.saw(at);
            return self.land(answers.into_iter().map(|answer| Ok((at, answer))));
        }
        // It is not to blame for what becomes of the call elsewhere.
        if let Some(link) = self.with_cargo(|cargo| cargo.link.take()) {
            let runtime = self.node.shared.runtime.clone();
            runtime.spawn((*self).go_on(link, reply.to_vec()));
        }
    }
}
