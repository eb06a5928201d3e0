//! Opening connections: who to be, how to speak, and how long to try.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::select_ok;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{Cmd, ServerError, Value, cmd, parse_redis_value};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::task::spawn_blocking;
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

/// How old what was read from files of certificates may be when a connection is opened: they are renewed
/// while we run.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// What connections are called in `CLIENT LIST`.
const NAME: &str = "tollgate";

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
    tls: Option<Arc<Secure>>,
}

/// TLS, by files that are read anew now and then.
struct Secure {
    files: Tls,
    latest: Mutex<(TlsConnector, Instant)>,
}

impl Connector {
    /// Reads the files TLS needs.
    pub(crate) fn new(url: &RedisUrl) -> io::Result<Self> {
        let tls = url.tls.clone().map(Secure::new).transpose()?.map(Arc::new);
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
        connected.await.unwrap_or_else(|_| {
            Err(Failure::unavailable(match self.tls {
                None => "connecting takes too long",
                Some(_) => "connecting takes too long; maybe no TLS is spoken there",
            }))
        })
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
        let secured = tls.current().await.connect(name, socket).await;
        Ok(Wire::over(secured.map_err(explained)?))
    }

    async fn log_in(&self, wire: &Wire) -> Result<(), Failure> {
        if let Some(password) = &self.login.password {
            let mut command = cmd("AUTH");
            command.arg(&self.login.user).arg(password);
            if let Value::ServerError(error) = reply(wire, &command, CONNECT).await? {
                return Err(Failure::unavailable(refused_login(&error)));
            }
        }
        // For who looks at the list. Not every user may, and then it has none.
        reply(wire, cmd("CLIENT").arg("SETNAME").arg(NAME), CONNECT).await?;
        if self.database > 0 {
            query(wire, cmd("SELECT").arg(self.database), CONNECT).await?;
        }
        Ok(())
    }
}

/// Why nobody was logged in, in words of ours: a server that does not know the command, or whatever stands
/// in front of it, quotes what it was sent, and that is a password.
fn refused_login(error: &ServerError) -> String {
    let says = |what| error.details().is_some_and(|details| details.contains(what));
    let what = match error.code() {
        "WRONGPASS" => "there is no such user, or the password is another",
        "NOPERM" => "the user may not log in",
        _ if says("password configured") || says("no password is set") => {
            "no password is wanted; leave it out of the URL"
        }
        _ if says("unknown command") => "it does not know the command AUTH",
        _ => "",
    };
    // A code is one word in capitals, or is none.
    let code = error.code();
    let code = if code.bytes().all(|byte| byte.is_ascii_uppercase()) { code } else { "an error" };
    format!("the server answered AUTH with {code}{}{what}", if what.is_empty() { "" } else { ": " })
}

/// What went wrong between two that try to speak TLS, with what may help.
fn explained(error: io::Error) -> io::Error {
    let help = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "; name the authority that signed it with ?ca=FILE",
        Some(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired)) => {
            "; name a certificate to show with ?cert=FILE&key=FILE"
        }
        Some(rustls::Error::InvalidMessage(_)) => "; maybe no TLS is spoken there",
        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
            return io::Error::new(
                error.kind(),
                "the connection was closed before TLS was agreed on",
            );
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}{help}"))
}

impl Secure {
    fn new(files: Tls) -> io::Result<Self> {
        let latest = Mutex::new((tls_connector(&files)?, Instant::now()));
        Ok(Self { files, latest })
    }

    /// By what the files hold now, or if that is of no use by what they held before.
    async fn current(self: &Arc<Self>) -> TlsConnector {
        let (known, read_at) = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if read_at.elapsed() < READ_AGAIN {
            return known;
        }
        let this = Arc::clone(self);
        // There may be hundreds of authorities to read.
        let read = spawn_blocking(move || tls_connector(&this.files)).await;
        let read = match read.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(%error, "cannot read TLS files again; what was read before is used");
                known
            }
        };
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = (read.clone(), Instant::now());
        read
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
            let private = private.map_err(|error| match error {
                pem::Error::NoItemsFound => {
                    in_file(key, "no private key in it, or one that is encrypted")
                }
                error => in_file(key, error),
            })?;
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
    match reply(wire, command, patience).await? {
        Value::ServerError(error) => Err(Failure::unavailable(plain(&error))),
        value => Ok(value),
    }
}

/// The same, whatever the server answers with.
async fn reply(wire: &Wire, command: &Cmd, patience: Duration) -> Result<Value, Failure> {
    let command = command.get_packed_command();
    let reply = timeout(patience, wire.request(&command))
        .await
        .unwrap_or_else(|_| Err(Failure::timeout()))?;
    parse_redis_value(&reply).map_err(|error| Failure::from(&error))
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}
