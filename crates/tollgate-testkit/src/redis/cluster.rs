//! A small Redis Cluster.

use super::client::Reply;
use super::process::free_port;
use super::server::Server;
use super::wait_for;

/// Slots in every cluster.
const SLOTS: usize = 16_384;

/// Three primaries, each with a replica that takes over when it is gone for a second.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries at the start, then their replicas in the same order.
    pub servers: Vec<Server>,
}

impl Cluster {
    /// Primaries at the start.
    pub const PRIMARIES: usize = 3;

    /// Starts a cluster and waits until all its servers agree.
    pub fn start() -> Self {
        let servers: Vec<Server> = (0..2 * Self::PRIMARIES).map(|_| node()).collect();
        let cluster = Self { servers };
        cluster.join();
        cluster.assign();
        wait_for("a cluster that agrees", || cluster.agrees().then_some(()));
        cluster
    }

    /// The URL, with the addresses of all servers.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.servers.iter().map(Server::address).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// The slot of a key, as a server computes it.
    pub fn slot(&self, key: &str) -> u16 {
        let reply = self.servers[0].command(&["CLUSTER", "KEYSLOT", key]);
        reply.integer().and_then(|slot| u16::try_from(slot).ok()).expect("a slot")
    }

    /// The place in [`servers`](Cluster::servers) of the primary that owned a slot at the start.
    pub fn owner(&self, slot: u16) -> usize {
        (0..Self::PRIMARIES).find(|&place| range(place).contains(&usize::from(slot))).expect("one")
    }

    /// Begins to move a slot from one server to another: keys that are missing are asked for there.
    pub fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let (giver, taker) = (self.id(from), self.id(to));
        self.ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &giver]);
        self.ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &taker]);
    }

    /// Moves every key of a slot that is there at this moment.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let reply =
            self.servers[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]);
        let port = self.servers[to].port().to_string();
        for key in reply.elements().iter().filter_map(Reply::text) {
            // A key may expire meanwhile, and then the reply is NOKEY.
            let reply =
                self.servers[from].command(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
            assert!(!reply.is_error(), "{reply:?}");
        }
    }

    /// Ends a migration: the slot belongs to its new owner.
    pub fn finish_migration(&self, slot: u16, from: usize, to: usize) {
        let (slot, taker) = (slot.to_string(), self.id(to));
        for place in [to, from] {
            self.ok(place, &["CLUSTER", "SETSLOT", &slot, "NODE", &taker]);
        }
    }

    /// Whether the server at `place` is a primary now.
    pub fn is_primary(&self, place: usize) -> bool {
        self.servers[place].info("role").as_deref() == Some("master")
    }

    /// Introduces all servers to the first.
    fn join(&self) {
        for (place, server) in self.servers.iter().enumerate() {
            self.ok(place, &["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]);
            if place > 0 {
                let (port, bus) = (server.port().to_string(), bus_port(server));
                self.ok(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        wait_for("servers that know each other", || {
            let knows_all = |server: &Server| {
                let info = server.command(&["CLUSTER", "INFO"]).text().unwrap_or_default();
                let nodes = server.command(&["CLUSTER", "NODES"]).text().unwrap_or_default();
                info.contains(&format!("cluster_known_nodes:{}\r", self.servers.len()))
                    && !nodes.contains("handshake")
            };
            self.servers.iter().all(knows_all).then_some(())
        });
    }

    /// Gives the primaries their slots and the replicas their primaries.
    fn assign(&self) {
        for place in 0..Self::PRIMARIES {
            let slots = range(place);
            let (first, last) = (slots.start.to_string(), (slots.end - 1).to_string());
            self.ok(place, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            let primary = self.id(place);
            self.ok(place + Self::PRIMARIES, &["CLUSTER", "REPLICATE", &primary]);
        }
    }

    /// Whether every server knows the owner of every slot, and every replica follows.
    fn agrees(&self) -> bool {
        let healthy = |server: &Server| {
            let info = server.command(&["CLUSTER", "INFO"]).text().unwrap_or_default();
            let slots = server.command(&["CLUSTER", "SLOTS"]);
            // First and last slot, the primary, and its replica.
            let whole = slots.elements().iter().all(|range| range.elements().len() == 4);
            info.contains("cluster_state:ok")
                && info.contains(&format!("cluster_slots_assigned:{SLOTS}\r"))
                && slots.elements().len() == Self::PRIMARIES
                && whole
        };
        let follows = |server: &Server| server.info("master_link_status").as_deref() == Some("up");
        self.servers.iter().all(healthy) && self.servers[Self::PRIMARIES..].iter().all(follows)
    }

    fn id(&self, place: usize) -> String {
        self.servers[place].command(&["CLUSTER", "MYID"]).text().expect("an identity")
    }

    fn ok(&self, place: usize, command: &[&str]) {
        let reply = self.servers[place].command(command);
        assert_eq!(reply, Reply::Simple("OK".into()), "{command:?}");
    }
}

/// The slots of the primary at `place`.
fn range(place: usize) -> std::ops::Range<usize> {
    SLOTS * place / Cluster::PRIMARIES..SLOTS * (place + 1) / Cluster::PRIMARIES
}

fn node() -> Server {
    // The usual one, ten thousand above, may be beyond the last port.
    let bus = free_port().to_string();
    let arguments = [
        ["--cluster-enabled", "yes"],
        ["--cluster-port", &bus],
        ["--cluster-node-timeout", "1000"],
        ["--cluster-require-full-coverage", "no"],
        ["--repl-diskless-sync-delay", "0"],
    ];
    Server::builder().arguments(&arguments.concat()).start()
}

fn bus_port(server: &Server) -> String {
    let reply = server.command(&["CONFIG", "GET", "cluster-port"]);
    reply.elements().get(1).and_then(Reply::text).expect("a port")
}
