//! Every kind of URL leads to a server.

use tollgate::{Algorithm, Cost, Limiter, StoreErrorKind};
use tollgate_redis::RedisStore;
use tollgate_testkit::redis::{Cluster, Sentinels, Server};

use crate::{meter, store, take};

#[tokio::test]
async fn a_socket() {
    let server = Server::start();
    let store = store(&format!("unix://{}", server.socket()));
    assert!(take(&store, "key").await.unwrap().is_allowed());
    assert_eq!(server.keys().len(), 1);
}

#[tokio::test]
async fn a_database() {
    let server = Server::start();
    let over_tcp = store(&format!("{}/3", server.url()));
    let over_socket = store(&format!("unix://{}?database=3", server.socket()));
    assert!(take(&over_tcp, "one").await.unwrap().is_allowed());
    assert!(take(&over_socket, "two").await.unwrap().is_allowed());
    assert!(server.keys().is_empty());
    let mut client = server.client();
    client.send(&["SELECT", "3"]).unwrap();
    assert_eq!(client.send(&["DBSIZE"]).unwrap().integer(), Some(2));
}

#[tokio::test]
async fn a_user_and_a_password() {
    let server = Server::builder().user("gate", "s3cr:t").start();
    let url = |login: &str| format!("redis://{login}@{}", server.address());
    assert!(take(&store(&url("gate:s3cr%3At")), "key").await.unwrap().is_allowed());
    let error = take(&store(&url("gate:wrong")), "key").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let said = format!("{error} {error:?}");
    assert!(said.contains("WRONGPASS") || said.contains("Authentication"), "{said}");
    assert!(!said.contains("wrong\""), "{said}");
}

#[tokio::test]
async fn tls() {
    let server = Server::builder().tls().start();
    let (port, certificates) = server.tls();
    let url = format!("rediss://localhost:{port}");
    let trusting = store(&format!("{url}?ca={}", certificates.authority()));
    assert!(take(&trusting, "key").await.unwrap().is_allowed());
    // The system does not know this authority.
    let error = take(&store(&url), "key").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let missing = RedisStore::builder(&format!("{url}?ca=/nowhere")).unwrap().build();
    assert!(missing.unwrap_err().to_string().contains("/nowhere"));
}

#[tokio::test]
async fn sentinels() {
    let all = Sentinels::start(1);
    let watched = store(&all.url());
    assert!(take(&watched, "key").await.unwrap().is_allowed());
    assert_eq!(all.primary().keys().len(), 1);
    let unknown = store(&all.url().replace(Sentinels::SERVICE, "other"));
    let error = take(&unknown, "key").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(format!("{error:#}").contains("it does not know the service \"other\""), "{error:#}");
}

#[tokio::test]
async fn a_cluster() {
    let cluster = Cluster::start();
    // One server is enough to find the others.
    let store = store(&format!("redis+cluster://{}", cluster.servers[0].address()));
    for number in 0..50 {
        assert!(take(&store, &format!("key:{number}")).await.unwrap().is_allowed());
    }
    let primaries = &cluster.servers[..Cluster::PRIMARIES];
    let held: Vec<usize> = primaries.iter().map(|server| server.keys().len()).collect();
    assert!(held.iter().all(|&keys| keys > 0), "{held:?}");
    assert_eq!(held.iter().sum::<usize>(), 50);
    assert_eq!(store.stats().servers, Cluster::PRIMARIES);

    // A slice goes to all of them at once, and every answer finds its question.
    let hourly = meter("10/hour", Algorithm::TokenBucket);
    let keys: Vec<String> = (0..30).map(|number| format!("slice:{number}")).collect();
    let answers = Limiter::new(&store).take_many(&keys, hourly, Cost::ONE).await;
    assert_eq!(answers.len(), 30);
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_allowed()));
}
