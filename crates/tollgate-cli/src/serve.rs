//! Runs a server until it is told to stop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::pin::pin;

use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tollgate::MemoryStore;
use tollgate_server::{Listeners, Settings, Stop};

use crate::exit::{Exit, Failure};
use crate::plan::{Address, Print, Serve};

mod signals;

use signals::Signals;

/// Serves as planned.
pub(crate) fn run(plan: Serve) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format_args!("failed to start threads: {error}")))?;
    runtime.block_on(serve(plan))
}

async fn serve(plan: Serve) -> Result<Exit, Failure> {
    // Before the address is printed: whoever reads it may send a signal at once.
    let mut signals = Signals::new()
        .map_err(|error| Failure::new(format_args!("failed to listen for signals: {error}")))?;
    let http = bind("--http", &plan.http).await?;
    let address = http.local_addr();
    let address =
        address.map_err(|error| Failure::new(format_args!("failed to listen: {error}")))?;
    let (stop, stopped) = oneshot::channel();
    let mut server = pin!(tollgate_server::run(
        Listeners { http },
        Settings::new(MemoryStore::new()),
        // Dropping the sender is no reason to go on without one.
        async { stopped.await.unwrap_or(()) },
    ));
    announce(address, plan.print);
    let ended = tokio::select! {
        ended = &mut server => ended,
        () = signals.next() => {
            let _ = stop.send(());
            tokio::select! {
                ended = &mut server => ended,
                // Asked twice: the requests under way are cut.
                () = signals.next() => return Err(Failure::new("stopped before all was answered")),
            }
        }
    };
    if let Stop::Cut(connections) = ended {
        eprintln!("tollgate: {connections} connections were too slow to finish, and were cut");
    }
    Ok(Exit::Fine)
}

async fn bind(flag: &str, address: &Address) -> Result<TcpListener, Failure> {
    let address = address.as_str();
    TcpListener::bind(address).await.map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("; stop whoever listens there, or choose another with {flag} HOST:PORT")
            }
            io::ErrorKind::PermissionDenied => {
                format!("; choose a port from 1024 with {flag} HOST:PORT")
            }
            _ => String::new(),
        };
        Failure::new(format_args!("failed to listen on {address}: {error}{remedy}"))
    })
}

/// Says where the server answers, once it does.
fn announce(address: SocketAddr, print: Print) {
    let url = format!("http://{address}");
    let mut out = io::stdout().lock();
    let printed = match print {
        Print::Text => writeln!(out, "listening on {url}"),
        Print::Json => writeln!(out, "{}", json!({ "listening": { "http": url } })),
    };
    // A server whose output nobody reads still serves.
    let _ = printed.and_then(|()| out.flush());
}
