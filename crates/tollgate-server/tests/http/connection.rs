//! Slow clients, many clients, and the end.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_server::{Limits, Stop};

use crate::server::Server;

const BODY: &str = r#"{"charges":[{"key":"k","quota":"5/min"}]}"#;

/// A connection on which a take has been announced but its body not sent. That the server asks for
/// the body shows that the request is under way.
async fn half_way(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let length = BODY.len();
    let head = format!(
        "POST /v1/take HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut go = [0; 25];
    stream.read_exact(&mut go).await.unwrap();
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// Limits under which a patient test sees the end of them.
fn short(head: u64, body: u64, drain: u64) -> Limits {
    Limits {
        head: Duration::from_millis(head),
        body: Duration::from_millis(body),
        drain: Duration::from_millis(drain),
        ..Limits::default()
    }
}

#[tokio::test]
async fn slow_clients_hold_up_nobody_else() {
    let server = Server::start().await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut head = TcpStream::connect(server.address).await.unwrap();
        head.write_all(b"POST /v1/take HT").await.unwrap();
        slow.push(head);
        slow.push(half_way(&server).await);
    }
    for left in (0..5).rev() {
        assert_eq!(server.post("/v1/take", BODY).await.remaining(), [left]);
    }
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut() {
    let server = Server::limited(short(50, 10_000, 10_000)).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"POST /v1/take HT").await.unwrap();
    assert!(!rest(stream).await.contains("200 OK"));
    let silent = TcpStream::connect(server.address).await.unwrap();
    rest(silent).await;
}

#[tokio::test]
async fn a_body_that_never_comes_is_given_up_and_charges_nothing() {
    let server = Server::limited(short(10_000, 50, 10_000)).await;
    let answer = rest(half_way(&server).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("application/problem+json"), "{answer}");
    assert_eq!(server.post("/v1/peek", BODY).await.remaining(), [5]);
}

#[tokio::test]
async fn a_body_cut_short_charges_nothing() {
    let server = Server::start().await;
    let mut stream = half_way(&server).await;
    stream.write_all(&BODY.as_bytes()[..10]).await.unwrap();
    stream.shutdown().await.unwrap();
    rest(stream).await;
    assert_eq!(server.post("/v1/peek", BODY).await.remaining(), [5]);
}

#[tokio::test]
async fn a_client_that_asks_first_is_spared_sending_too_much() {
    let server = Server::start().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /v1/take HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 70000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn connections_beyond_the_most_wait_for_their_turn() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let server = Server::limited(limits).await;
    let mut first = half_way(&server).await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let early = tokio::time::timeout(Duration::from_millis(50), second.readable()).await;
    assert!(early.is_err(), "served beyond the limit");
    first.write_all(BODY.as_bytes()).await.unwrap();
    drop(first);
    assert!(rest(second).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn stopping_finishes_what_is_under_way_and_accepts_nothing_new() {
    let server = Server::start().await;
    let address = server.address;
    let mut busy = half_way(&server).await;
    let idle = TcpStream::connect(address).await.unwrap();
    let stopping = server.stop();
    // Refused connections show that the stop has begun.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!stopping.is_finished());
    busy.write_all(BODY.as_bytes()).await.unwrap();
    let answer = rest(busy).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(stopping.await.unwrap(), Stop::Drained);
    drop(idle);
}

#[tokio::test]
async fn stopping_does_not_wait_for_ever() {
    let server = Server::limited(short(10_000, 10_000, 50)).await;
    let busy = half_way(&server).await;
    assert_eq!(server.stop().await.unwrap(), Stop::Cut(1));
    assert!(!rest(busy).await.contains("200 OK"));
}
