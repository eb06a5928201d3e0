//! Opening connections: who to be, how to speak, and how long to try.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates, Value,
};
use tokio::time::timeout;

use crate::failure::{Failure, plain};
use crate::url::{Address, Login, RedisUrl};

/// How long connecting may take, with TLS and logging in. Only tasks in the background wait so long.
/// With the pause between attempts it has to stay well below the two seconds in which a server that
/// is back has to be found.
pub(crate) const CONNECT: Duration = Duration::from_secs(1);

/// An idle connection is probed by the kernel after so long, and again as often.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// How long the kernel keeps what was sent and not acknowledged before it gives a connection up.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Commands a connection takes before a caller has to wait for the socket. Every one of them is a
/// call that counts as out, so more than a few would never be used.
const PIPELINE: usize = 256;

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
    tls: Option<TlsCertificates>,
}

impl Connector {
    /// Reads the files TLS needs.
    pub(crate) fn new(url: &RedisUrl) -> io::Result<Self> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })
        };
        let tls = match &url.tls {
            None => None,
            Some(tls) => {
                // There is one for the whole process, and another crate may have installed it.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let root_cert = tls.authority.as_deref().map(read).transpose()?;
                let client_tls = match &tls.certificate {
                    None => None,
                    Some((certificate, key)) => Some(ClientTlsConfig {
                        client_cert: read(certificate)?,
                        client_key: read(key)?,
                    }),
                };
                Some(TlsCertificates { client_tls, root_cert })
            }
        };
        Ok(Self { login: url.login.clone(), database: url.database, tls })
    }

    /// The same ways for another login, as sentinels have.
    pub(crate) fn with_login(&self, login: Login) -> Self {
        Self { login, database: 0, tls: self.tls.clone() }
    }

    /// Opens a connection and logs in.
    pub(crate) async fn connect(&self, target: &Target) -> Result<MultiplexedConnection, Failure> {
        let client = self.client(target).map_err(|error| Failure::unavailable(&error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            // The deadline is the caller's business.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        connection.map_err(|error| Failure::unavailable(&error))
    }

    fn client(&self, target: &Target) -> RedisResult<Client> {
        let address = match (target, &self.tls) {
            (Target::Socket(path), _) => ConnectionAddr::Unix(path.clone()),
            (Target::Address(address), None) => {
                ConnectionAddr::Tcp(address.host.clone(), address.port)
            }
            (Target::Address(Address { host, port }), Some(_)) => ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure: false,
                tls_params: None,
            },
        };
        let mut settings = RedisConnectionInfo::default().set_db(i64::from(self.database));
        if let Some(user) = &self.login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.login.password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info()?;
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp_settings());
        match (target, &self.tls) {
            (Target::Address(_), Some(tls)) => Client::build_with_tls(info, tls.clone()),
            _ => Client::open(info),
        }
    }
}

fn tcp_settings() -> TcpSettings {
    let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keep_alive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(USER_TIMEOUT);
    settings
}

/// Sends a command and waits so long for its reply; an error the server answers with is a failure.
pub(crate) async fn query(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    patience: Duration,
) -> Result<Value, Failure> {
    match timeout(patience, connection.send_packed_command(command)).await {
        Err(_) => Err(Failure::timeout()),
        Ok(Err(error)) => Err(Failure::from(&error)),
        Ok(Ok(Value::ServerError(error))) => Err(Failure::unavailable(plain(&error))),
        Ok(Ok(value)) => Ok(value),
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
