//! A load generator that does next to nothing, so that the server is what is measured.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What is asked, over and over.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nuser-agent: tollgate-bench\r\n\
    accept: */*\r\naccept-encoding: gzip\r\n\r\n";

/// What every answer ends with.
const END: &[u8] = b"\r\n\r\nhello";

/// The longest answer there can be.
const MAX_ANSWER: usize = 4_096;

/// Connections kept alive, each with one request under way.
pub(crate) struct Load {
    connections: Vec<TcpStream>,
}

impl Load {
    /// Opens so many connections.
    pub(crate) fn connect(address: SocketAddr, connections: usize) -> io::Result<Self> {
        let connect = |_| {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        Ok(Self { connections: (0..connections).map(connect).collect::<io::Result<_>>()? })
    }

    /// Asks for so long, and says how many answers came.
    pub(crate) fn run_for(&self, time: Duration) -> io::Result<u64> {
        let end = Instant::now() + time;
        self.run_while(|| Instant::now() < end)
    }

    /// Asks so often over each connection.
    pub(crate) fn run_rounds(&self, rounds: u64) -> io::Result<u64> {
        let mut begun = 1..rounds;
        self.run_while(|| begun.next().is_some())
    }

    /// Asks once over each connection, and again as long as there are to be more; says how many answers
    /// came.
    ///
    /// All connections are written to before the first is read from, so that the server always has
    /// something to do.
    fn run_while(&self, mut more: impl FnMut() -> bool) -> io::Result<u64> {
        let mut answers = 0;
        let mut answer = [0; MAX_ANSWER];
        for connection in &self.connections {
            send(connection)?;
        }
        while more() {
            for connection in &self.connections {
                receive(connection, &mut answer)?;
                send(connection)?;
                answers += 1;
            }
        }
        for connection in &self.connections {
            receive(connection, &mut answer)?;
            answers += 1;
        }
        Ok(answers)
    }
}

/// One answer, as text.
#[cfg(test)]
pub(crate) fn ask_once(address: SocketAddr) -> io::Result<String> {
    let stream = TcpStream::connect(address)?;
    send(&stream)?;
    let mut answer = [0; MAX_ANSWER];
    let length = receive(&stream, &mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

fn send(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(REQUEST)
}

/// Reads one answer, which must be a granted one, and says how long it is.
fn receive(mut stream: &TcpStream, answer: &mut [u8; MAX_ANSWER]) -> io::Result<usize> {
    let mut length = 0;
    while !answer[..length].ends_with(END) {
        let read = stream.read(&mut answer[length..])?;
        if read == 0 {
            return Err(io::Error::other("an answer has no end, or is not the expected one"));
        }
        length += read;
    }
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Err(io::Error::other("a request was refused"));
    }
    Ok(length)
}
