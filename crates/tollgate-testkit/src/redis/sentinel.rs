//! A primary with replicas, watched by sentinels.

use super::client::Reply;
use super::server::{Server, ServerBuilder};
use super::wait_for;

/// A primary, its replicas and three sentinels that replace it when it is gone for half a second.
#[derive(Debug)]
pub struct Sentinels {
    /// The first was the primary at the start.
    pub servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// The name the sentinels know the primary by.
    pub const SERVICE: &'static str = "tollgate";

    /// Starts a primary and so many replicas, and waits until all know of each other.
    pub fn start(replicas: usize) -> Self {
        let eager = ["--repl-diskless-sync-delay", "0"];
        let primary = Server::builder().arguments(&eager).start();
        let port = primary.port().to_string();
        let mut servers = vec![primary];
        servers.extend((0..replicas).map(|_| {
            let builder = Server::builder().arguments(&eager);
            builder.arguments(&["--replicaof", &format!("127.0.0.1 {port}")]).start()
        }));
        let connected = Some(replicas.to_string());
        wait_for("replicas", || {
            let online =
                |server: &Server| server.info("master_link_status").as_deref() == Some("up");
            (servers[0].info("connected_slaves") == connected && servers[1..].iter().all(online))
                .then_some(())
        });
        let sentinels: Vec<Server> = (0..3).map(|_| sentinel(&port)).collect();
        let all = Self { servers, sentinels };
        wait_for("sentinels that know each other", || all.agree(replicas).then_some(()));
        all
    }

    /// The URL, with the addresses of all sentinels.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.sentinels.iter().map(Server::address).collect();
        format!("redis+sentinel://{}/{}", addresses.join(","), Self::SERVICE)
    }

    /// The port of the primary, as the first sentinel knows it.
    pub fn primary_port(&self) -> u16 {
        let reply =
            self.sentinels[0].command(&["SENTINEL", "get-master-addr-by-name", Self::SERVICE]);
        let port = reply.elements().get(1).and_then(Reply::text);
        port.and_then(|port| port.parse().ok()).expect("a port")
    }

    /// The server that is the primary, as the first sentinel knows it.
    pub fn primary(&self) -> &Server {
        let port = self.primary_port();
        self.servers.iter().find(|server| server.port() == port).expect("one of the servers")
    }

    /// Has the sentinels replace the primary though it is well; whether they agreed to.
    pub fn fail_over(&self) -> bool {
        !self.sentinels[0].command(&["SENTINEL", "FAILOVER", Self::SERVICE]).is_error()
    }

    /// Has all sentinels take another server for the primary, without a word to the one before.
    pub fn watch(&self, server: &Server) {
        let port = server.port().to_string();
        for sentinel in &self.sentinels {
            for command in [
                ["SENTINEL", "REMOVE", Self::SERVICE].as_slice(),
                &["SENTINEL", "MONITOR", Self::SERVICE, "127.0.0.1", &port, "2"],
            ] {
                let reply = sentinel.command(command);
                assert!(!reply.is_error(), "{command:?}: {reply:?}");
            }
        }
    }

    /// Whether every sentinel knows the others and all replicas.
    fn agree(&self, replicas: usize) -> bool {
        let count = |sentinel: &Server, what| {
            sentinel.command(&["SENTINEL", what, Self::SERVICE]).elements().len()
        };
        self.sentinels.iter().all(|sentinel| {
            count(sentinel, "sentinels") == self.sentinels.len() - 1
                && count(sentinel, "replicas") == replicas
        })
    }
}

fn sentinel(primary: &str) -> Server {
    let name = Sentinels::SERVICE;
    let lines = format!(
        "sentinel monitor {name} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {name} 500\n\
         sentinel failover-timeout {name} 5000\n"
    );
    ServerBuilder::default().configuration(lines).arguments(&["--sentinel"]).start()
}
