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
pub(crate) fn find(extensions: &Extensions) -> Option<IpAddr> {
    let left = find_left(extensions).map(SocketAddr::ip);
    left.or_else(|| of_tonic(extensions))
}

/// The peer's address where it lies, if it is left for all to see. An address that is handed about is
/// written and read in pieces of many sizes, which takes a processor longer than all else about it.
#[inline]
pub(crate) fn find_left(extensions: &Extensions) -> Option<&SocketAddr> {
    let own = extensions.get::<PeerAddr>().map(|peer| &peer.0);
    own.or_else(|| of_axum(extensions))
}

#[cfg(feature = "axum")]
#[inline]
fn of_axum(extensions: &Extensions) -> Option<&SocketAddr> {
    let info = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>();
    info.map(|info| &info.0)
}

#[cfg(not(feature = "axum"))]
fn of_axum(_: &Extensions) -> Option<&SocketAddr> {
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
