//! Commands by hand, for setting up and looking.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that sends one command at a time.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// What a server replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A short text, as `OK`.
    Simple(String),
    /// An error.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes, or none.
    Bulk(Option<Vec<u8>>),
    /// Several replies.
    Array(Vec<Reply>),
}

impl Client {
    /// A connection to a port of the loopback.
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and waits for its reply. An error reply is a reply.
    pub fn send<A: AsRef<[u8]>>(&mut self, command: &[A]) -> io::Result<Reply> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            let argument = argument.as_ref();
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)?;
        self.receive()
    }

    /// Waits for one more reply, where a command is answered with several.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
        let (kind, rest) = line.split_at_checked(1).ok_or_else(wrong)?;
        let number = || rest.parse::<i64>().map_err(|_| wrong());
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(number()?),
            "$" => Reply::Bulk(self.bulk(number()?)?),
            "*" => Reply::Array((0..number()?).map(|_| self.receive()).collect::<io::Result<_>>()?),
            _ => return Err(wrong()),
        })
    }

    fn bulk(&mut self, length: i64) -> io::Result<Option<Vec<u8>>> {
        let Ok(length) = usize::try_from(length) else {
            return Ok(None);
        };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Some(bytes))
    }
}

impl Reply {
    /// The text of a simple or bulk reply or of an error.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Simple(text) | Self::Error(text) => Some(text.clone()),
            Self::Bulk(Some(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Self::Integer(_) | Self::Bulk(None) | Self::Array(_) => None,
        }
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of an array; none of anything else.
    pub fn elements(&self) -> &[Reply] {
        match self {
            Self::Array(elements) => elements,
            _ => &[],
        }
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}
