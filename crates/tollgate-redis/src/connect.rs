//! Opening connections: who to be, how to speak, and how long to try.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{Cmd, Value, cmd, parse_redis_value};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::failure::{Failure, plain};
use crate::url::{Address, Login, RedisUrl, Tls};
use crate::wire::Wire;

/// How long connecting may take, with TLS and logging in. Only tasks in the background wait so long.
/// With the pause between attempts it has to stay well below the two seconds in which a server that
/// is back has to be found.
pub(crate) const CONNECT: Duration = Duration::from_secs(1);

/// An idle connection is probed by the kernel after so long, and again as often.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// How long the kernel keeps what was sent and not acknowledged before it gives a connection up.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// What a connection leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Address(Address),
    Socket(PathBuf),
}

/// How connections are opened, whatever they lead to.
#[derive(Clone)]
pub(crate) struct Connector {
    login: Login,
    database: u32,
    tls: Option<TlsConnector>,
}

impl Connector {
    /// Reads the files TLS needs.
    pub(crate) fn new(url: &RedisUrl) -> io::Result<Self> {
        let tls = url.tls.as_ref().map(tls_connector).transpose()?;
        Ok(Self { login: url.login.clone(), database: url.database, tls })
    }

    /// The same ways for another login, as sentinels have.
    pub(crate) fn with_login(&self, login: Login) -> Self {
        Self { login, database: 0, tls: self.tls.clone() }
    }

    /// Opens a connection and logs in.
    pub(crate) async fn connect(&self, target: &Target) -> Result<Wire, Failure> {
        let connected = timeout(CONNECT, async {
            let wire = self.open(target).await.map_err(Failure::unavailable)?;
            self.log_in(&wire).await?;
            Ok(wire)
        });
        connected.await.unwrap_or_else(|_| Err(Failure::unavailable("connecting takes too long")))
    }

    async fn open(&self, target: &Target) -> io::Result<Wire> {
        let Address { host, port } = match target {
            Target::Socket(path) => return Ok(Wire::over(UnixStream::connect(path).await?)),
            Target::Address(address) => address,
        };
        let addresses = lookup_host((host.as_str(), *port)).await?;
        let attempts: Vec<_> = addresses.map(|one| Box::pin(TcpStream::connect(one))).collect();
        if attempts.is_empty() {
            return Err(io::Error::other(format!("{host} has no address")));
        }
        let (socket, _) = select_ok(attempts).await?;
        set_up(&socket)?;
        let Some(tls) = &self.tls else { return Ok(Wire::over(socket)) };
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        Ok(Wire::over(tls.connect(name, socket).await?))
    }

    async fn log_in(&self, wire: &Wire) -> Result<(), Failure> {
        if let Some(password) = &self.login.password {
            let mut command = cmd("AUTH");
            command.arg(&self.login.user).arg(password);
            query(wire, &command, CONNECT).await?;
        }
        if self.database > 0 {
            query(wire, cmd("SELECT").arg(self.database), CONNECT).await?;
        }
        Ok(())
    }
}

/// What speaks TLS, with the authorities and the certificate a URL names.
fn tls_connector(tls: &Tls) -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match &tls.authority {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| in_file(path, error))?;
            }
        }
        // Of the system's some may be unreadable; the others are as good as ever.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    // Not the one of the process, which another crate may choose or forget to.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let config = match &tls.certificate {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let private = PrivateKeyDer::from_pem_slice(&read(key)?);
            let private = private.map_err(|error| in_file(key, error))?;
            let chain = certificates(certificate)?;
            config.with_client_auth_cert(chain, private).map_err(|error| in_file(key, error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates.map_err(|error| in_file(path, error))? {
        none if none.is_empty() => Err(in_file(path, "no certificate in it")),
        some => Ok(some),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn in_file(path: &Path, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}

fn set_up(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE);
    socket.set_tcp_keepalive(&keep_alive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}

/// Sends a command and waits so long for its reply; an error the server answers with is a failure.
pub(crate) async fn query(
    wire: &Wire,
    command: &Cmd,
    patience: Duration,
) -> Result<Value, Failure> {
    let command = command.get_packed_command();
    let reply = timeout(patience, wire.request(&command))
        .await
        .unwrap_or_else(|_| Err(Failure::timeout()))?;
    match parse_redis_value(&reply).map_err(|error| Failure::from(&error))? {
        Value::ServerError(error) => Err(Failure::unavailable(plain(&error))),
        value => Ok(value),
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}
