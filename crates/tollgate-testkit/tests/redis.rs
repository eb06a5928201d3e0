//! The servers other tests rely on do what they say.

use std::path::Path;
use std::time::{Duration, Instant};

use tollgate_testkit::redis::{
    Client, Cluster, Proxy, Reply, Sentinels, Server, installed, wait_for,
};

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

#[test]
fn a_program_that_is_missing_is_named_with_what_to_install() {
    assert!(installed("redis-server").is_ok());
    let error = installed("redis-server-of-next-year").unwrap_err().to_string();
    assert!(error.starts_with("redis-server-of-next-year was not found; install it: "), "{error}");
}

#[test]
fn a_server_lives_as_long_as_its_owner() {
    let server = Server::start();
    assert_eq!(server.command(&["SET", "key", "value", "PX", "60000"]), ok());
    assert_eq!(server.keys(), ["key"]);
    assert!(server.keys_without_expiry().is_empty());
    server.command(&["SET", "forever", "1"]);
    assert_eq!(server.keys_without_expiry(), ["forever"]);
    let (process, socket) = (server.process_id(), server.socket());
    assert!(Path::new(&socket).exists());
    drop(server);
    assert!(!Path::new(&format!("/proc/{process}")).exists());
    assert!(!Path::new(&socket).exists());
}

#[test]
fn a_server_can_be_killed_paused_and_restarted_empty() {
    let mut server = Server::start();
    server.command(&["SET", "key", "value"]);
    server.pause();
    let port = server.port();
    let waiting = std::thread::spawn(move || Client::connect(port)?.send(&["PING"]));
    server.resume();
    assert_eq!(waiting.join().unwrap().unwrap(), Reply::Simple("PONG".into()));
    server.kill();
    assert!(Client::connect(port).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert!(server.keys().is_empty());
}

#[test]
fn servers_speak_tls_and_let_only_their_user_in() {
    let server = Server::builder().tls().user("gate", "secret").start();
    let (port, certificates) = server.tls();
    assert_ne!(port, server.port());
    assert!(Path::new(&certificates.authority()).exists());
    assert!(server.command(&["PING"]).is_error());
    let mut client = server.client();
    assert_eq!(client.send(&["AUTH", "gate", "secret"]).unwrap(), ok());
    assert_eq!(client.send(&["PING"]).unwrap(), Reply::Simple("PONG".into()));
}

#[test]
fn sentinels_replace_a_primary_that_is_gone() {
    let mut all = Sentinels::start(1);
    let before = all.primary_port();
    assert_eq!(before, all.servers[0].port());
    all.servers[0].kill();
    wait_for("another primary", || (all.primary_port() != before).then_some(()));
    wait_for("its promotion", || (all.primary().info("role")? == "master").then_some(()));
}

#[test]
fn a_cluster_moves_slots_and_replaces_primaries() {
    let mut cluster = Cluster::start();
    let slot = cluster.slot("key");
    let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % Cluster::PRIMARIES);
    assert_eq!(cluster.servers[from].command(&["SET", "key", "value"]), ok());
    cluster.begin_migration(slot, from, to);
    cluster.move_keys(slot, from, to);
    let asked = cluster.servers[from].command(&["GET", "key"]);
    assert!(asked.text().unwrap().starts_with("ASK"), "{asked:?}");
    cluster.finish_migration(slot, from, to);
    let moved = cluster.servers[from].command(&["GET", "key"]);
    assert!(moved.text().unwrap().starts_with("MOVED"), "{moved:?}");
    let replica = to + Cluster::PRIMARIES;
    assert!(!cluster.is_primary(replica));
    cluster.servers[to].kill();
    wait_for("the replica's promotion", || cluster.is_primary(replica).then_some(()));
}

#[test]
fn a_proxy_delays_cuts_and_swallows() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let pong = Reply::Simple("PONG".into());
    let mut client = Client::connect(proxy.port()).unwrap();
    assert_eq!(client.send(&["PING"]).unwrap(), pong);

    proxy.delay(Duration::from_millis(30));
    let sent = Instant::now();
    assert_eq!(client.send(&["PING"]).unwrap(), pong);
    assert!(sent.elapsed() >= Duration::from_millis(60));
    proxy.delay(Duration::ZERO);

    proxy.cut();
    assert!(client.send(&["PING"]).is_err());
    let mut client = Client::connect(proxy.port()).unwrap();
    assert_eq!(client.send(&["PING"]).unwrap(), pong);

    proxy.black_hole();
    let port = proxy.port();
    let swallowed = std::thread::spawn(move || Client::connect(port)?.send(&["INCR", "key"]));
    assert_eq!(server.command(&["GET", "key"]), Reply::Bulk(None));
    proxy.cut();
    assert!(swallowed.join().unwrap().is_err());
    proxy.restore();
    assert_eq!(Client::connect(proxy.port()).unwrap().send(&["PING"]).unwrap(), pong);
    assert_eq!(server.command(&["GET", "key"]), Reply::Bulk(None));
}
