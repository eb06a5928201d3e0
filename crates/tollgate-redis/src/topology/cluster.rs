//! The servers of a cluster, and which of them owns which slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::{Value, cmd};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

use super::Locator;
use crate::connect::{Target, query};
use crate::failure::Failure;
use crate::node::Node;
use crate::shared::{Shared, Told};
use crate::slot::SLOTS;
use crate::url::Address;

/// The map is read again so often when nothing seems wrong.
const READ_EVERY: Duration = Duration::from_secs(5);

/// And so often while something is: a server is down, or one has sent us elsewhere. It also keeps
/// many redirections from becoming as many readings.
const READ_SOON: Duration = Duration::from_millis(100);

/// How long a server has to say who owns what.
const PATIENCE: Duration = Duration::from_millis(500);

/// The most servers known at a time; no cluster comes near.
const MOST_NODES: usize = 1_000;

/// A cluster as far as it is known.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    seeds: Vec<Address>,
    // Nodes refer to their cluster.
    this: Weak<Self>,
    state: Mutex<State>,
    // The map is there, or could not be read.
    settled: Notify,
    // The map may be wrong.
    suspected: Arc<Notify>,
    // Dropped, and so ended, with the cluster.
    reader: Mutex<JoinSet<()>>,
}

struct State {
    nodes: HashMap<Address, Arc<Node>>,
    // Absent until it was read for the first time.
    owners: Option<Vec<Option<Arc<Node>>>>,
    // Why it was not.
    trouble: Option<Failure>,
    told: Told,
    // Whom to ask next.
    turn: usize,
}

/// Slots from the first to the last, and their owner.
struct Range {
    first: usize,
    last: usize,
    owner: Address,
}

impl Cluster {
    pub(super) fn start(seeds: Vec<Address>, shared: &Arc<Shared>) -> Arc<Self> {
        let cluster = Arc::new_cyclic(|this| Self {
            shared: Arc::clone(shared),
            seeds,
            this: Weak::clone(this),
            state: Mutex::new(State {
                nodes: HashMap::new(),
                owners: None,
                trouble: None,
                told: Told::default(),
                turn: 0,
            }),
            settled: Notify::new(),
            suspected: Arc::default(),
            reader: Mutex::new(JoinSet::new()),
        });
        let mut reader = cluster.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.spawn_on(keep_reading(Weak::clone(&cluster.this)), &shared.runtime);
        drop(reader);
        cluster
    }

    /// The owner of a slot, as soon as the map was read.
    pub(crate) async fn owner(&self, slot: u16, deadline: Instant) -> Result<Arc<Node>, Failure> {
        loop {
            // Asked for before looking, lest it be missed between.
            let settled = self.settled.notified();
            {
                let state = self.lock();
                if let Some(owners) = &state.owners {
                    let owner = owners.get(usize::from(slot)).and_then(Option::as_ref);
                    let nobody = || Failure::unavailable(format!("no server owns slot {slot}"));
                    return owner.map(Arc::clone).ok_or_else(nobody);
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

    /// The server at an address another one pointed at. Without a host it is at the `pointing` one's.
    pub(crate) fn node_at(
        &self,
        address: &str,
        pointing: Option<&str>,
    ) -> Result<Arc<Node>, Failure> {
        let unknown = || Failure::protocol(format!("sent to {address:?}, which is no address"));
        let (host, port) = address.rsplit_once(':').ok_or_else(unknown)?;
        let port = port.parse().map_err(|_| unknown())?;
        let host = match host.trim_matches(['[', ']']) {
            "" | "?" => pointing.ok_or_else(unknown)?,
            host => host,
        };
        let mut state = self.lock();
        if state.nodes.len() >= MOST_NODES {
            return Err(Failure::protocol("sent to too many servers"));
        }
        Ok(self.node(&mut state, Address { host: host.to_owned(), port }))
    }

    /// Has the map read soon.
    pub(crate) fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// Sends off what has gathered, on every server.
    pub(super) fn go(&self) {
        let nodes: Vec<Arc<Node>> = self.lock().nodes.values().cloned().collect();
        nodes.iter().for_each(Node::go);
    }

    pub(super) fn servers(&self) -> (usize, usize) {
        let state = self.lock();
        let down = state.nodes.values().filter(|node| !node.is_up()).count();
        (state.nodes.len(), down)
    }

    fn node(&self, state: &mut State, address: Address) -> Arc<Node> {
        let start = |address: &Address| {
            let locator = Locator::InCluster(Target::Address(address.clone()));
            Node::start(&self.shared, locator, &self.this)
        };
        let node = state.nodes.entry(address);
        Arc::clone(node.or_insert_with_key(start))
    }

    /// Reads the map once.
    async fn read(&self) {
        let mut failure = Failure::unavailable("no server of the cluster is known");
        for address in self.whom_to_ask() {
            match timeout(PATIENCE, self.read_from(&address)).await {
                Ok(Ok(ranges)) => return self.put(ranges),
                Ok(Err(error)) => failure = error.of(&address),
                Err(_) => failure = Failure::timeout().of(&address),
            }
        }
        let mut state = self.lock();
        // Once there is a map, its servers say what is wrong with them.
        if state.owners.is_none() {
            state.told.tell(&self.shared.logbook, &"a cluster", &failure);
        }
        state.trouble = Some(failure.lasting());
        drop(state);
        self.settled.notify_waiters();
    }

    /// Servers that are up, in turn, then the seeds.
    fn whom_to_ask(&self) -> Vec<Address> {
        let mut state = self.lock();
        let up = state.nodes.iter().filter(|(_, node)| node.is_up());
        let mut addresses: Vec<Address> = up.map(|(address, _)| address.clone()).collect();
        state.turn = state.turn.wrapping_add(1);
        if let Some(first) = state.turn.checked_rem(addresses.len()) {
            addresses.rotate_left(first);
        }
        // Two that are up are enough to ask, and a seed may be one of them.
        addresses.truncate(2);
        addresses.extend(self.seeds.iter().cloned());
        addresses
    }

    async fn read_from(&self, address: &Address) -> Result<Vec<Range>, Failure> {
        let target = Target::Address(address.clone());
        let connection = self.shared.connector.connect(&target).await?;
        let mut command = cmd("CLUSTER");
        command.arg("SLOTS");
        let reply = query(&connection, &command, PATIENCE).await?;
        let none = || Failure::protocol("a map of slots that is none");
        let ranges = ranges(&reply, address).ok_or_else(none)?;
        match ranges.is_empty() {
            // It was reset or removed, or never joined. Others know better.
            true => Err(Failure::unavailable("a server that knows of no slots")),
            false => Ok(ranges),
        }
    }

    /// Puts a map in force. Servers it does not name are let go.
    fn put(&self, ranges: Vec<Range>) {
        let mut state = self.lock();
        let mut owners = vec![None; usize::from(SLOTS)];
        let mut named = HashMap::new();
        for Range { first, last, owner } in ranges {
            let node = self.node(&mut state, owner.clone());
            for place in owners.iter_mut().take(last + 1).skip(first) {
                *place = Some(Arc::clone(&node));
            }
            named.insert(owner, node);
        }
        let before = std::mem::replace(&mut state.nodes, named);
        let replaced = state.owners.replace(owners);
        if replaced.is_none() && state.trouble.is_some() {
            self.shared.logbook.reached(&"a cluster");
        }
        state.trouble = None;
        drop(state);
        self.settled.notify_waiters();
        // Outside the lock, for nodes may end with this.
        drop((before, replaced));
    }

    /// Whether the map is whole and all its servers are up.
    fn is_well(&self) -> bool {
        let state = self.lock();
        let whole = |owners: &Vec<Option<Arc<Node>>>| owners.iter().all(Option::is_some);
        state.owners.as_ref().is_some_and(whole) && state.nodes.values().all(|node| node.is_up())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the map again and again, for as long as the cluster lives.
async fn keep_reading(cluster: Weak<Cluster>) {
    loop {
        let Some(strong) = cluster.upgrade() else { return };
        strong.read().await;
        let pause = match strong.is_well() {
            true => READ_EVERY,
            false => READ_SOON,
        };
        let suspected = Arc::clone(&strong.suspected);
        // While waiting nothing holds the cluster, so that it can end.
        drop(strong);
        // Woken early by a suspicion; either way not at once again.
        let _ = timeout(pause, suspected.notified()).await;
        sleep(READ_SOON).await;
    }
}

/// The answer to `CLUSTER SLOTS`: for each range first, last, and the owner's host and port.
fn ranges(reply: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(|range| self::range(range, asked)).collect()
}

fn range(range: &Value, asked: &Address) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(owner), ..] = parts.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = owner.as_slice() else { return None };
    let host = match host {
        // A server that does not know its own address is where it was asked.
        Value::Nil => asked.host.clone(),
        Value::BulkString(bytes) if bytes.is_empty() || bytes == b"?" => asked.host.clone(),
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok()?,
        _ => return None,
    };
    let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
    let port = u16::try_from(*port).ok()?;
    (first <= last && last < usize::from(SLOTS)).then_some(Range {
        first,
        last,
        owner: Address { host, port },
    })
}
