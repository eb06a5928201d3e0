//! What is said of a server that cannot be used: the reason, and never a password.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Algorithm, Charge, ChargeSet, Cost, Limiter, StoreErrorKind};
use tollgate_testkit::redis::{Cluster, Server};
use tracing::subscriber::{DefaultGuard, set_default};

use super::{meter, store, take};

/// The guide, which says what a user of Redis has to be permitted.
const GUIDE: &str = include_str!("../../../../docs/redis.md");

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];

/// What this thread has logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn begin() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let writer = move || writer.clone();
        let logged = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
        (log, set_default(logged))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn count(&self, what: &str) -> usize {
        self.text().matches(what).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a decision fails at this URL, and what is logged of it.
async fn reason(url: &str) -> String {
    let (log, _guard) = Log::begin();
    let error = take(&store(url), "key").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:#}");
    let reason = format!("{error:#}");
    let told = reason.trim_start_matches("reach the store: ");
    assert!(log.text().contains(told), "{reason}\nlogged: {}", log.text());
    format!("{reason}\n{error:?}\n{}", log.text())
}

/// The ACL rules the guide says.
fn rules() -> Vec<&'static str> {
    let line = GUIDE.lines().find_map(|line| line.strip_prefix("ACL SETUSER tollgate "));
    line.expect("a user in the guide").split(' ').collect()
}

/// A server with a user of these rules.
fn server_with(rules: &[&str]) -> Server {
    Server::builder().arguments(&[&["--user", "tollgate"], rules].concat()).start()
}

fn url_of(server: &Server) -> String {
    format!("redis://tollgate:password@{}", server.address())
}

#[tokio::test]
async fn a_server_that_quotes_what_it_was_sent_gives_no_password_away() {
    let server = Server::builder().arguments(&["--rename-command", "AUTH", "X"]).start();
    let reason = reason(&format!("redis://gate:hunter2@{}", server.address())).await;
    assert!(reason.contains("it does not know the command AUTH"), "{reason}");
    assert!(!reason.contains("hunter2"), "{reason}");
}

#[tokio::test]
async fn a_login_that_fails_says_why() {
    let server = Server::start();
    let unwanted = reason(&format!("redis://:hunter2@{}", server.address())).await;
    assert!(unwanted.contains("no password is wanted; leave it out of the URL"), "{unwanted}");
    let unknown = reason(&format!("redis://gate:hunter2@{}", server.address())).await;
    assert!(unknown.contains("WRONGPASS: there is no such user"), "{unknown}");
    assert!(!format!("{unwanted}{unknown}").contains("hunter2"));
}

#[tokio::test]
async fn of_a_cluster_and_of_sentinels_it_is_said_which_server() {
    // A server that is neither.
    let server = Server::start();
    let address = server.address();
    let cluster = reason(&format!("redis+cluster://{address}")).await;
    assert!(
        cluster.contains(&format!("{address}: ERR This instance has cluster support")),
        "{cluster}"
    );
    let sentinels = reason(&format!("redis+sentinel://{address}/service")).await;
    assert!(sentinels.contains(&format!("{address}: ERR unknown command")), "{sentinels}");
    drop(server);
    let nobody = reason(&format!("redis+cluster://{address}")).await;
    assert!(nobody.contains(&format!("{address}: Connection refused")), "{nobody}");
}

#[tokio::test]
async fn one_server_of_a_cluster_says_how_to_reach_all() {
    let cluster = Cluster::start();
    let one = store(&cluster.servers[0].url());
    let mut errors = Vec::new();
    for number in 0..20 {
        errors.extend(take(&one, &format!("key:{number}")).await.err());
    }
    let error = errors.first().expect("a key of another server");
    assert!(format!("{error:#}").contains("write redis+cluster://"), "{error:#}");
}

#[tokio::test]
async fn another_reason_than_the_first_is_told_too() {
    let mut server = Server::builder().user("gate", "password").start();
    let url = format!("redis://gate:wrong@{}", server.address());
    server.kill();
    let (log, _guard) = Log::begin();
    let store = store(&url);
    take(&store, "key").await.unwrap_err();
    assert_eq!(log.count("Connection refused"), 1, "{}", log.text());
    server.restart();
    while log.count("WRONGPASS") == 0 {
        sleep(Duration::from_millis(50)).await;
    }
    // Each once, however often it was tried.
    assert_eq!(log.count("cannot use redis"), 2, "{}", log.text());
}

#[tokio::test]
async fn what_the_guide_says_a_user_needs_is_enough() {
    let server = server_with(&rules());
    let store = store(&url_of(&server));
    let limiter = Limiter::new(&store);
    for algorithm in ALGORITHMS {
        let meter = meter("3/hour", algorithm);
        for _ in 0..5 {
            limiter.take("key", meter, Cost::ONE).await.unwrap();
        }
        limiter.peek("key", meter, Cost::ONE).await.unwrap();
        let at = limiter.take("other", meter, Cost::ONE).await.unwrap().at();
        limiter.refund("other", meter, Cost::ONE, at).await.unwrap();
        limiter.reset("other", meter).await.unwrap();
    }
    let mut set = ChargeSet::new();
    for algorithm in ALGORITHMS {
        let charge = Charge::take("together", meter("9/hour", algorithm), Cost::ONE);
        set.push(charge).unwrap();
    }
    assert!(limiter.take_set(&set).await.unwrap().is_allowed());
    assert!(server.keys_without_expiry().is_empty());
}

#[tokio::test]
async fn what_a_user_is_not_permitted_is_an_error() {
    let without: Vec<&str> = rules().into_iter().filter(|rule| *rule != "+decrby").collect();
    let server = server_with(&without);
    let store = store(&url_of(&server));
    let limiter = Limiter::new(&store);
    let hourly = meter("3/hour", Algorithm::FixedWindow);
    for _ in 0..3 {
        assert!(limiter.take("key", hourly, Cost::ONE).await.unwrap().is_allowed());
    }
    let error = limiter.take("key", hourly, Cost::ONE).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(format!("{error:#}").contains("can't run this command"), "{error:#}");
}

#[tokio::test]
async fn an_authority_that_is_put_in_its_place_later_is_read() {
    let (server, other) = (Server::builder().tls().start(), Server::builder().tls().start());
    let (port, certificates) = server.tls();
    let file = std::env::temp_dir().join(format!("tollgate-authority-{port}.pem"));
    std::fs::copy(other.tls().1.authority(), &file).unwrap();
    let url = format!("rediss://localhost:{port}?ca={}", file.display());
    let (_log, _guard) = Log::begin();
    let store = store(&url);
    let error = take(&store, "key").await.unwrap_err();
    assert!(format!("{error:#}").contains("?ca=FILE"), "{error:#}");
    std::fs::copy(certificates.authority(), &file).unwrap();
    while take(&store, "key").await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
    std::fs::remove_file(&file).unwrap();
}
