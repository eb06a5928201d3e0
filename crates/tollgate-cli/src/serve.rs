//! Runs a server until it is told to stop.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tollgate_config::{Loaded, Settings};
use tollgate_server::{Listeners, Stop};

use crate::exit::{Exit, Failure};
use crate::plan::{Print, Serve};

mod assembly;
mod signals;

use assembly::Assembly;
use signals::{Signal, Signals};

/// Serves as planned.
pub(crate) fn run(plan: Serve) -> Result<Exit, Failure> {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_max_level(plan.log)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format_args!("failed to start threads: {error}")))?;
    let exit = runtime.block_on(serve(plan));
    // Whoever is still reading a file that does not end is not waited for.
    runtime.shutdown_background();
    exit
}

async fn serve(plan: Serve) -> Result<Exit, Failure> {
    // Before the address is printed: whoever reads it may send a signal at once.
    let mut signals = Signals::new()
        .map_err(|error| Failure::new(format_args!("failed to listen for signals: {error}")))?;
    let Loaded { settings, warnings } = plan.loader.load().map_err(Failure::settings)?;
    if !warnings.is_empty() {
        eprint!("{warnings}");
    }
    let http = bind(&settings).await?;
    let address = http.local_addr();
    let address =
        address.map_err(|error| Failure::new(format_args!("failed to listen: {error}")))?;
    let Assembly { settings, reloaders } = Assembly::new(settings, plan.loader, plan.envoy)?;
    let (stop, stopped) = oneshot::channel();
    let mut server = pin!(tollgate_server::run(
        Listeners { http },
        settings,
        // Dropping the sender is no reason to go on without one.
        async { stopped.await.unwrap_or(()) },
    ));
    announce(address, plan.print);
    let ended = loop {
        tokio::select! {
            ended = &mut server => break ended,
            signal = signals.next() => match signal {
                Signal::Hangup => {
                    let reloaders = Arc::clone(&reloaders);
                    // Whoever is told of changes is told how this went.
                    tokio::task::spawn_blocking(move || {
                        reloaders.iter().for_each(|reloader| drop(reloader.reload()));
                    });
                }
                Signal::Stop => {
                    let _ = stop.send(());
                    break tokio::select! {
                        ended = &mut server => ended,
                        // Asked twice: the requests under way are cut.
                        () = signals.stop() => {
                            return Err(Failure::new("stopped before all was answered"));
                        }
                    };
                }
            },
        }
    };
    if let Stop::Cut(connections) = ended {
        eprintln!("tollgate: {connections} connections were too slow to finish, and were cut");
    }
    Ok(Exit::Fine)
}

async fn bind(settings: &Settings) -> Result<TcpListener, Failure> {
    let Some(address) = &settings.listen.http else {
        let detail = "there is nothing to listen on; set listen.http, or use --http HOST:PORT";
        return Err(Failure::new(detail));
    };
    TcpListener::bind(address).await.map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; stop whoever listens there, or choose another with --http HOST:PORT"
            }
            io::ErrorKind::PermissionDenied => "; choose a port from 1024 with --http HOST:PORT",
            _ => "",
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
