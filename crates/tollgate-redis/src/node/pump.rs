//! Sending off what has gathered.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;

use super::call::Call;
use super::{Link, Node, Waiting};

/// A call's place among those that may be out. When it is given up, those who wait get it.
pub(super) struct Place {
    pub(super) node: Arc<Node>,
    // Handed to a task that has not run yet. One that never does, because its runtime is shutting
    // down, must not hand it to the next.
    on_its_way: bool,
}

impl Place {
    /// A place that was counted already.
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node), on_its_way: false }
    }

    /// Hands the place to those who wait.
    pub(super) fn pass_on(mut self) {
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
    batch.sort_by_key(|waiting| waiting.asked.slot);
    let mut groups = Vec::new();
    while let Some(last) = batch.last() {
        let slot = last.asked.slot;
        groups.push(batch.split_off(batch.partition_point(|waiting| waiting.asked.slot < slot)));
    }
    let calls = groups.into_iter().map(|group| call_for(node, link.clone(), group, deadline));
    join_all(calls).await;
}

async fn call_for(node: &Arc<Node>, link: Link, group: Vec<Waiting>, deadline: Instant) {
    let mut questions = Vec::with_capacity(group.len());
    let mut callers = Vec::with_capacity(group.len());
    for Waiting { asked, caller } in group {
        questions.push(asked.question);
        callers.push((caller, asked.permit));
    }
    let replies = Call { questions: &questions, deadline }.run(node, link).await;
    for ((caller, _), reply) in callers.into_iter().zip(replies) {
        // A caller that has left needs no answer.
        let _ = caller.send(reply);
    }
}
