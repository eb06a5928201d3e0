//! What the examples share: with the argument `demo` they ask themselves and end, so that tests can
//! run them.

use std::error::Error;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Port 3000, or a free one for a demonstration.
pub(crate) fn address() -> SocketAddr {
    let port = if is_demo() { 0 } else { 3_000 };
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn is_demo() -> bool {
    std::env::args().any(|argument| argument == "demo")
}

/// Serves for ever, or until the demonstration is over.
pub(crate) async fn serve<E: Into<Box<dyn Error>>>(
    server: impl Future<Output = Result<(), E>>,
    demo: impl Future<Output = Result<(), Box<dyn Error>>>,
) -> Result<(), Box<dyn Error>> {
    if !is_demo() {
        println!("listening on {}", address());
        return server.await.map_err(Into::into);
    }
    tokio::select! {
        served = server => served.map_err(Into::into),
        shown = demo => shown,
    }
}

/// The first line of an answer, and what it says about limits.
pub(crate) async fn get(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<String, Box<dyn Error>> {
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    stream.write_all(b"\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let told = |line: &&str| line.starts_with("ratelimit:") || line.starts_with("retry-after:");
    let mut lines = answer.lines();
    let mut summary = lines.next().unwrap_or_default().to_owned();
    for line in lines.take_while(|line| !line.is_empty()).filter(told) {
        summary.push_str(&format!(", {line}"));
    }
    Ok(summary)
}
