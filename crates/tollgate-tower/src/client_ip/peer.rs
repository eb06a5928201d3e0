//! Who opened the connection, wherever the server left it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::Extensions;

/// The address of the peer, put into a request's extensions by whoever accepted the connection.
///
/// For servers on plain hyper. axum leaves its `ConnectInfo<SocketAddr>` there
/// (`into_make_service_with_connect_info`) and tonic its `TcpConnectInfo`, both of which are found.
///
/// ```
/// use tollgate_tower::PeerAddr;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddr("192.0.2.7:4711".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// Where a server keeps its peers' addresses otherwise.
pub(crate) type PeerFn = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// The peer's address.
#[inline]
pub(crate) fn find(extensions: &Extensions) -> Option<IpAddr> {
    let own = extensions.get::<PeerAddr>().map(|peer| peer.0.ip());
    own.or_else(|| of_axum(extensions)).or_else(|| of_tonic(extensions))
}

#[cfg(feature = "axum")]
fn of_axum(extensions: &Extensions) -> Option<IpAddr> {
    let info = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>();
    info.map(|info| info.0.ip())
}

#[cfg(not(feature = "axum"))]
fn of_axum(_: &Extensions) -> Option<IpAddr> {
    None
}

#[cfg(feature = "tonic")]
fn of_tonic(extensions: &Extensions) -> Option<IpAddr> {
    let info = extensions.get::<tonic::transport::server::TcpConnectInfo>();
    info?.remote_addr().map(|address| address.ip())
}

#[cfg(not(feature = "tonic"))]
fn of_tonic(_: &Extensions) -> Option<IpAddr> {
    None
}
