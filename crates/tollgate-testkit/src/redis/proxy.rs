//! A wire that can be made worse.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How often a waiting thread looks whether the proxy is gone.
const GLANCE: Duration = Duration::from_millis(50);

/// Passes bytes on to a port of the loopback, later or never.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    wire: Arc<Wire>,
}

#[derive(Debug, Default)]
struct Wire {
    delay_micros: AtomicU64,
    swallow: AtomicBool,
    gone: AtomicBool,
    // Both ends of every connection, to be cut.
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// A proxy on a free port before `target`.
    pub fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound address").port();
        let wire = Arc::new(Wire::default());
        let same = Arc::clone(&wire);
        thread::spawn(move || accept(&listener, target, &same));
        Self { port, wire }
    }

    /// The port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL, as `redis://127.0.0.1:6379`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Holds everything back for so long, each way.
    pub fn delay(&self, each_way: Duration) {
        let micros = u64::try_from(each_way.as_micros()).expect("a short delay");
        self.wire.delay_micros.store(micros, Ordering::SeqCst);
    }

    /// Cuts every connection there is; new ones are served.
    pub fn cut(&self) {
        let mut streams = self.wire.streams.lock().expect("nothing panics while it is held");
        for stream in streams.drain(..) {
            // Its other end may have hung up already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Swallows everything, and from then on whatever those connections carry; new connections are
    /// accepted and swallowed too, until [`restore`](Proxy::restore).
    pub fn black_hole(&self) {
        self.wire.swallow.store(true, Ordering::SeqCst);
    }

    /// Serves new connections again. Those that were swallowed stay half open, as after a lost
    /// route.
    pub fn restore(&self) {
        self.wire.swallow.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.gone.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts, which then sees that it is over.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn accept(listener: &TcpListener, target: u16, wire: &Arc<Wire>) {
    for client in listener.incoming() {
        if wire.gone.load(Ordering::SeqCst) {
            return;
        }
        let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", target))) else {
            // Dropping the client is how a wire without a server behind it looks.
            continue;
        };
        // A connection that is gone already needs no threads.
        let _ = connect(client, server, wire);
    }
}

fn connect(client: TcpStream, server: TcpStream, wire: &Arc<Wire>) -> std::io::Result<()> {
    let swallowed = Arc::new(AtomicBool::new(false));
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GLANCE))?;
        let mut streams = wire.streams.lock().expect("nothing panics while it is held");
        streams.push(stream.try_clone()?);
    }
    let ways = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for (from, to) in ways {
        let (wire, swallowed) = (Arc::clone(wire), Arc::clone(&swallowed));
        thread::spawn(move || pass(from, to, &wire, &swallowed));
    }
    Ok(())
}

/// Passes bytes one way until either end hangs up.
fn pass(mut from: TcpStream, mut to: TcpStream, wire: &Wire, swallowed: &AtomicBool) {
    let mut bytes = vec![0; 64 * 1024];
    while !wire.gone.load(Ordering::SeqCst) {
        swallowed.fetch_or(wire.swallow.load(Ordering::SeqCst), Ordering::SeqCst);
        let length = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => break,
        };
        thread::sleep(Duration::from_micros(wire.delay_micros.load(Ordering::SeqCst)));
        swallowed.fetch_or(wire.swallow.load(Ordering::SeqCst), Ordering::SeqCst);
        if !swallowed.load(Ordering::SeqCst) && to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    // What came in one way is over; so is the other.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
