//! What the README says to type works as printed, and is answered as printed.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const README: &str = include_str!("../../../README.md");

/// A server on a free port that ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["serve", "--http", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://").unwrap().to_owned();
        Self { child, address }
    }

    /// The status and the body of the answer to a body as curl's `-d` sends it.
    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len(),
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed must not leave it behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text between the first `before` and the next `after`.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no {after:?} after {before:?}")).0
}

#[test]
fn the_first_curl_is_answered_as_the_readme_shows() {
    let command = between(README, "```sh\ncurl ", "\n```");
    // The address is where the server listens unless told otherwise.
    let path = between(command, "http://127.0.0.1:8080", " ");
    let body = between(command, "-d '", "'");
    let mut shown: Value = serde_json::from_str(between(README, "```json\n", "\n```")).unwrap();

    let server = Server::start();
    let (status, mut answer) = server.post(path, body);
    assert_eq!(status, 200);
    // The instant is another one; everything else is the same.
    for decision in [&mut shown, &mut answer] {
        assert!(decision["at_us"].take().is_u64());
    }
    assert_eq!(answer, shown);

    assert_eq!(server.post(path, body).0, 200);
    assert_eq!(server.post(path, body).0, 200);
    let (status, fourth) = server.post(path, body);
    assert_eq!((status, fourth["verdict"].as_str()), (429, Some("deny")));
    assert!(fourth["outcomes"][0]["retry_ms"].is_u64(), "{fourth}");
}

#[test]
fn the_composite_is_accepted() {
    let body = between(README, "Over HTTP it is the same list: `", "`");
    let (status, answer) = Server::start().post("/v1/take", body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["outcomes"].as_array().map(Vec::len), Some(3));
}
