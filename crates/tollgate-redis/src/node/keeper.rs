//! Keeping one link up, in the background, for as long as its node lives.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{Value, cmd};
use tokio::select;
use tokio::time::sleep;
use tollgate::StoreErrorKind;

use super::{Link, Node};
use crate::connect::{CONNECT, Target, query};
use crate::failure::Failure;
use crate::wire::Wire;

/// The pause after a failed attempt; it doubles with each, up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause. A server that is back is noticed after it and one attempt, which together have
/// to stay below two seconds.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How often a link nobody complains about is looked after, lest an idle one be found dead by a
/// caller.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// How often it is asked whether the server is still the right one.
const ASK_EVERY: Duration = Duration::from_secs(4);

/// A link that lasted so long was good, and the next attempt need not be delayed.
const GOOD: Duration = Duration::from_secs(1);

/// Connects, looks after the link until it is lost, and begins again.
pub(super) async fn keep(node: Weak<Node>) {
    let mut pause = SHORTEST_PAUSE;
    // Between two steps nothing holds the node, so that it can end.
    while let Some(attempt) = attempt(&node).await {
        let begun = Instant::now();
        if let Ok((link, target)) = attempt {
            look_after(&node, &link, &target).await;
        }
        if begun.elapsed() >= GOOD {
            pause = SHORTEST_PAUSE;
        }
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Connects once; none if the node is gone.
async fn attempt(node: &Weak<Node>) -> Option<Result<(Link, Target), Failure>> {
    let (locator, shared) = {
        let node = node.upgrade()?;
        (node.locator.clone(), Arc::clone(&node.shared))
    };
    let connected = async {
        let (wire, target) = locator.connect(&shared.connector).await?;
        // However long decisions may take: an attempt that leads nowhere has to end.
        let patience = shared.deadline.min(CONNECT);
        examine(&wire, patience, locator.may_be_replica()).await?;
        Ok((wire, target))
    };
    let connected: Result<(Wire, Target), Failure> = connected.await;
    let node = node.upgrade()?;
    Some(match connected {
        Ok((wire, target)) => Ok((node.adopt(wire), target)),
        Err(failure) => {
            node.missed(&failure);
            Err(failure)
        }
    })
}

/// Returns when the link is lost.
async fn look_after(node: &Weak<Node>, link: &Link, target: &Target) {
    let mut asked = Instant::now();
    loop {
        select! {
            () = link.lost.notified() => return,
            // Looked after at once, lest a caller find out.
            () = link.wire.broken() => {}
            () = sleep(CHECK_EVERY) => {}
        }
        let Some((shared, locator)) =
            node.upgrade().map(|node| (Arc::clone(&node.shared), node.locator.clone()))
        else {
            return;
        };
        let may_be_replica = locator.may_be_replica();
        let mut examined = examine(&link.wire, shared.deadline, may_be_replica).await;
        if examined.is_ok() && asked.elapsed() >= ASK_EVERY {
            if locator.has_moved(target, &shared.connector).await {
                examined = Err(Failure::unavailable("the sentinels name another primary"));
            }
            asked = Instant::now();
        }
        if let (Err(failure), Some(node)) = (examined, node.upgrade()) {
            node.lose(link, &failure);
        }
    }
}

/// Whether a server is well: it answers within the deadline decisions have, and is no replica.
async fn examine(wire: &Wire, patience: Duration, may_be_replica: bool) -> Result<(), Failure> {
    query(wire, &cmd("PING"), patience).await?;
    if may_be_replica {
        return Ok(());
    }
    match query(wire, &cmd("ROLE"), patience).await {
        Ok(role) if is_replica(&role) => {
            Err(Failure::new(StoreErrorKind::ReadOnly, "the server is a replica"))
        }
        Ok(_) => Ok(()),
        Err(failure) if failure.kind == StoreErrorKind::Timeout => Err(failure),
        // Not every user may ask for it; then writing shows.
        Err(_) => Ok(()),
    }
}

fn is_replica(role: &Value) -> bool {
    let Value::Array(parts) = role else {
        return false;
    };
    match parts.first() {
        Some(Value::BulkString(name)) => name == b"slave",
        Some(Value::SimpleString(name)) => name == "slave",
        _ => false,
    }
}
