//! What a wire does whatever the stream: replies in pieces, a full socket, callers that leave.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;
use tollgate::StoreErrorKind;

use super::{LEAST_BUFFER, Wire};
use crate::failure::Failure;

/// Long beyond any machine's hiccups; nothing here waits for it.
const LONG: Duration = Duration::from_secs(30);

fn wire_and_server(room: usize) -> (Wire, DuplexStream) {
    let (ours, theirs) = duplex(room);
    (Wire::over(ours), theirs)
}

async fn reply_to(wire: Wire, command: &'static [u8]) -> Result<Vec<u8>, Failure> {
    timeout(LONG, wire.request(command)).await.expect("an end")
}

async fn received(server: &mut DuplexStream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    timeout(LONG, server.read_exact(&mut bytes)).await.expect("in time").expect("bytes");
    assert_eq!(bytes, expected);
}

#[tokio::test]
async fn a_reply_may_come_byte_by_byte() {
    let (wire, mut server) = wire_and_server(1);
    let asking = tokio::spawn(reply_to(wire, b"ask"));
    received(&mut server, b"ask").await;
    let reply = b"*3\r\n$3\r\na\nb\r\n:-7\r\n*1\r\n$-1\r\n";
    for byte in reply {
        assert!(!asking.is_finished(), "before the reply was whole");
        server.write_all(&[*byte]).await.expect("a reader");
    }
    assert_eq!(asking.await.expect("no panic").expect("a reply"), reply);
}

#[tokio::test]
async fn replies_go_to_those_who_asked_in_their_order() {
    let (wire, mut server) = wire_and_server(1 << 10);
    let first = tokio::spawn(reply_to(wire.clone(), b"1"));
    received(&mut server, b"1").await;
    let second = tokio::spawn(reply_to(wire.clone(), b"2"));
    received(&mut server, b"2").await;
    server.write_all(b":1\r\n+two\r\n").await.expect("a reader");
    assert_eq!(first.await.expect("no panic").expect("a reply"), b":1\r\n");
    assert_eq!(second.await.expect("no panic").expect("a reply"), b"+two\r\n");
}

#[tokio::test]
async fn what_a_full_socket_does_not_take_goes_later_and_in_order() {
    let (wire, mut server) = wire_and_server(4);
    let first = tokio::spawn(reply_to(wire.clone(), b"a command longer than the socket's room,"));
    let second = tokio::spawn(reply_to(wire.clone(), b" another,"));
    tokio::task::yield_now().await;
    received(&mut server, b"a command longer than the socket's room, another,").await;
    // The way is free again, and senders write themselves.
    let third = tokio::spawn(reply_to(wire, b"3"));
    received(&mut server, b"3").await;
    server.write_all(b":1\r\n:2\r\n:3\r\n").await.expect("a reader");
    for (asking, reply) in [(first, b":1\r\n"), (second, b":2\r\n"), (third, b":3\r\n")] {
        assert_eq!(asking.await.expect("no panic").expect("a reply"), reply);
    }
}

#[tokio::test]
async fn a_reply_may_be_longer_than_any_buffer() {
    let (wire, mut server) = wire_and_server(1 << 10);
    let asking = tokio::spawn(reply_to(wire, b"ask"));
    received(&mut server, b"ask").await;
    let length = 5 * LEAST_BUFFER + 3;
    let reply = [format!("${length}\r\n").into_bytes(), vec![b'\n'; length], b"\r\n".to_vec()];
    server.write_all(&reply.concat()).await.expect("a reader");
    assert_eq!(asking.await.expect("no panic").expect("a reply"), reply.concat());
}

#[tokio::test]
async fn the_reply_of_one_who_left_goes_to_nobody_else() {
    let (wire, mut server) = wire_and_server(1 << 10);
    let leaving = tokio::spawn(reply_to(wire.clone(), b"1"));
    received(&mut server, b"1").await;
    leaving.abort();
    assert!(leaving.await.expect_err("it was aborted").is_cancelled());
    let staying = tokio::spawn(reply_to(wire, b"2"));
    received(&mut server, b"2").await;
    server.write_all(b":1\r\n:2\r\n").await.expect("a reader");
    assert_eq!(staying.await.expect("no panic").expect("a reply"), b":2\r\n");
}

#[tokio::test]
async fn everybody_is_told_of_a_wire_that_breaks_and_it_stays_broken() {
    let (wire, mut server) = wire_and_server(1 << 10);
    let waiting = tokio::spawn(reply_to(wire.clone(), b"1"));
    received(&mut server, b"1").await;
    drop(server);
    let failure = waiting.await.expect("no panic").expect_err("nobody answers");
    assert_eq!(failure.kind, StoreErrorKind::Unavailable);
    timeout(LONG, wire.broken()).await.expect("the wire says so");
    let late = reply_to(wire, b"2").await.expect_err("nobody is there");
    assert_eq!(late.kind, StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn what_is_no_reply_and_a_reply_to_nothing_break_a_wire() {
    for bytes in ["HTTP/1.1 400\r\n", ":1\r\n:2\r\n", "$3\r\nlonger\r\n", ":x\r\n"] {
        let (wire, mut server) = wire_and_server(1 << 10);
        let waiting = tokio::spawn(reply_to(wire.clone(), b"1"));
        received(&mut server, b"1").await;
        server.write_all(bytes.as_bytes()).await.expect("a reader");
        timeout(LONG, wire.broken()).await.expect("the wire breaks");
        let first = waiting.await.expect("no panic");
        assert_eq!(first.is_ok(), bytes.starts_with(":1"), "{bytes:?}");
        reply_to(wire, b"2").await.expect_err("it is broken");
    }
}

#[tokio::test]
async fn the_last_handle_closes_the_connection() {
    let (wire, mut server) = wire_and_server(1 << 10);
    let another = wire.clone();
    drop(wire);
    another.send(b"1", []).expect("it is open");
    received(&mut server, b"1").await;
    drop(another);
    let end = timeout(LONG, server.read(&mut [0; 8])).await.expect("in time").expect("an end");
    assert_eq!(end, 0);
}
