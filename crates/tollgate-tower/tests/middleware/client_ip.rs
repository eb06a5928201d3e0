//! Attempts to be somebody else.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::{HeaderMap, HeaderValue, Request, Response};
use proptest::prelude::*;
use tollgate::{Policy, Rule};
use tollgate_tower::{Admitted, Axes, ClientIp, PeerAddr, RateLimitLayer, Trail};
use tower::ServiceBuilder;

use crate::scene::{Server, clock, gate, gate_on, plain, send, with_headers};

const XFF: &str = "x-forwarded-for";
const FWD: &str = "forwarded";

fn find(client_ip: &ClientIp, peer: &str, fields: &[(&'static str, &str)]) -> IpAddr {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    client_ip.find(peer.parse().unwrap(), &headers)
}

fn behind(networks: &[&str]) -> ClientIp {
    ClientIp::behind(networks.iter().map(|network| network.parse().unwrap()))
}

/// Peer, fields, who it is. Trusted: 10.0.0.0/8, 2001:db8:1::/48 and one address of 192.0.2.0/24.
type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const PROXY: &str = "10.0.0.1";

const CASES: &[Case] = &[
    // Nobody may speak for somebody else unless trusted.
    ("203.0.113.9", &[(XFF, "6.6.6.6")], "203.0.113.9"),
    ("203.0.113.9", &[(XFF, "10.0.0.1")], "203.0.113.9"),
    ("11.0.0.1", &[(XFF, "6.6.6.6")], "11.0.0.1"),
    ("192.0.2.8", &[(XFF, "6.6.6.6")], "192.0.2.8"),
    // The client is the last hop that is not a proxy.
    (PROXY, &[(XFF, "203.0.113.9")], "203.0.113.9"),
    (PROXY, &[(XFF, "6.6.6.6, 203.0.113.9")], "203.0.113.9"),
    (PROXY, &[(XFF, "127.0.0.1, 203.0.113.9")], "203.0.113.9"),
    (PROXY, &[(XFF, "10.9.9.9, 203.0.113.9")], "203.0.113.9"),
    (PROXY, &[(XFF, "6.6.6.6, 203.0.113.9, 10.0.0.2")], "203.0.113.9"),
    (PROXY, &[(XFF, "6.6.6.6,203.0.113.9,192.0.2.7,10.0.0.2")], "203.0.113.9"),
    (PROXY, &[(XFF, "203.0.113.9, 6.6.6.6, 10.0.0.2")], "6.6.6.6"),
    // Several fields are one list.
    (PROXY, &[(XFF, "6.6.6.6"), (XFF, "203.0.113.9")], "203.0.113.9"),
    (PROXY, &[(XFF, "6.6.6.6, 203.0.113.9"), (XFF, "10.0.0.2")], "203.0.113.9"),
    // All hops are proxies: the first of them asked on its own behalf.
    (PROXY, &[(XFF, "10.0.0.3, 10.0.0.2")], "10.0.0.3"),
    (PROXY, &[], PROXY),
    // What is no address hides what stands left of it.
    (PROXY, &[(XFF, "6.6.6.6, unknown")], PROXY),
    (PROXY, &[(XFF, "6.6.6.6, _hidden, 10.0.0.2")], "10.0.0.2"),
    (PROXY, &[(XFF, "6.6.6.6,")], PROXY),
    (PROXY, &[(XFF, "6.6.6.6,, 10.0.0.2")], "10.0.0.2"),
    (PROXY, &[(XFF, "")], PROXY),
    (PROXY, &[(XFF, "999.1.1.1")], PROXY),
    (PROXY, &[(XFF, "6.6.6.6 203.0.113.9")], PROXY),
    (PROXY, &[(XFF, "010.0.0.2")], PROXY),
    (PROXY, &[(XFF, "203.0.113.9\u{a0}")], PROXY),
    (PROXY, &[(XFF, "203.0.113.9; 6.6.6.6")], PROXY),
    (PROXY, &[(XFF, "\"203.0.113.9, 6.6.6.6\"")], PROXY),
    (PROXY, &[(XFF, "fe80::1%eth0")], PROXY),
    // Ports, brackets and spaces that proxies add.
    (PROXY, &[(XFF, "203.0.113.9:4711")], "203.0.113.9"),
    (PROXY, &[(XFF, "[2001:db8:2::9]:4711")], "2001:db8:2::9"),
    (PROXY, &[(XFF, "[2001:db8:2::9]")], "2001:db8:2::9"),
    (PROXY, &[(XFF, "  6.6.6.6 ,\t203.0.113.9  ")], "203.0.113.9"),
    // IPv6, and IPv4 written as IPv6.
    ("2001:db8:1::1", &[(XFF, "2001:db8:2::9")], "2001:db8:2::9"),
    ("2001:db8:3::1", &[(XFF, "2001:db8:2::9")], "2001:db8:3::1"),
    ("::ffff:10.0.0.1", &[(XFF, "203.0.113.9")], "203.0.113.9"),
    (PROXY, &[(XFF, "6.6.6.6, ::ffff:203.0.113.9, ::ffff:10.0.0.2")], "203.0.113.9"),
    ("::ffff:203.0.113.9", &[(XFF, "6.6.6.6")], "203.0.113.9"),
    // The other header is not what these proxies write, so the client wrote it.
    (PROXY, &[(FWD, "for=6.6.6.6")], PROXY),
    (PROXY, &[(FWD, "for=6.6.6.6"), (XFF, "203.0.113.9")], "203.0.113.9"),
    (PROXY, &[("x-real-ip", "6.6.6.6"), (XFF, "203.0.113.9")], "203.0.113.9"),
    (PROXY, &[("client-ip", "6.6.6.6"), ("true-client-ip", "6.6.6.6")], PROXY),
];

const FORWARDED: &[Case] = &[
    (PROXY, &[(FWD, "for=203.0.113.9")], "203.0.113.9"),
    (PROXY, &[(FWD, "for=6.6.6.6, for=203.0.113.9;proto=https;by=10.0.0.1")], "203.0.113.9"),
    (PROXY, &[(FWD, "For=\"[2001:db8:2::9]:4711\"")], "2001:db8:2::9"),
    (PROXY, &[(FWD, "proto=http;FOR=\"203.0.113.9:80\"")], "203.0.113.9"),
    (PROXY, &[(FWD, "for=6.6.6.6"), (FWD, "for=203.0.113.9, for=10.0.0.2")], "203.0.113.9"),
    (PROXY, &[(FWD, "for=6.6.6.6, for=unknown")], PROXY),
    (PROXY, &[(FWD, "for=6.6.6.6, for=\"_hidden\", for=10.0.0.2")], "10.0.0.2"),
    (PROXY, &[(FWD, "for=6.6.6.6, by=203.0.113.9")], PROXY),
    // A comma, an escaped quote or a semicolon in a value makes no hop of it.
    (PROXY, &[(FWD, "for=203.0.113.9;host=\"a, for=6.6.6.6\"")], "203.0.113.9"),
    (PROXY, &[(FWD, "for=203.0.113.9;host=\"a\\\", for=6.6.6.6\"")], "203.0.113.9"),
    (PROXY, &[(FWD, "host=\"a;for=6.6.6.6;x\";for=203.0.113.9")], "203.0.113.9"),
    // A quote left open takes in nothing of what comes after it.
    (PROXY, &[(FWD, "for=\"6.6.6.6, for=203.0.113.9")], "203.0.113.9"),
    (PROXY, &[(FWD, "for=6.6.6.6\\, for=\"203.0.113.9\"")], "203.0.113.9"),
    (PROXY, &[(FWD, "for=\"6.6.6.6, for=203.0.113.9;host=\"a\", for=10.0.0.2")], "203.0.113.9"),
    (PROXY, &[(XFF, "6.6.6.6")], PROXY),
    ("203.0.113.9", &[(FWD, "for=6.6.6.6")], "203.0.113.9"),
];

#[test]
fn nobody_passes_for_somebody_else() {
    let client_ip = behind(&["10.0.0.0/8", "192.0.2.7", "2001:db8:1::/48"]);
    for (peer, fields, expected) in CASES {
        let expected: IpAddr = expected.parse().unwrap();
        assert_eq!(find(&client_ip, peer, fields), expected, "{peer} {fields:?}");
    }
    let client_ip = client_ip.trail(Trail::Forwarded);
    for (peer, fields, expected) in FORWARDED {
        let expected: IpAddr = expected.parse().unwrap();
        assert_eq!(find(&client_ip, peer, fields), expected, "{peer} {fields:?}");
    }
}

#[test]
fn nothing_is_believed_by_default() {
    for trail in [Trail::XForwardedFor, Trail::Forwarded] {
        let client_ip = ClientIp::new().trail(trail);
        for (peer, fields, _) in CASES.iter().chain(FORWARDED) {
            let peer_ip: IpAddr = peer.parse().unwrap();
            assert_eq!(find(&client_ip, peer, fields), peer_ip.to_canonical(), "{fields:?}");
        }
    }
}

#[test]
fn ipv6_counts_by_network_and_ipv4_by_address() {
    for (prefix, address, group) in [
        (64, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        (64, "2001:db8:1:2::", "2001:db8:1:2::"),
        (56, "2001:db8:1:2ff::9", "2001:db8:1:200::"),
        (48, "2001:db8:1:2::9", "2001:db8:1::"),
        (128, "2001:db8::9", "2001:db8::9"),
        (255, "2001:db8::9", "2001:db8::9"),
        (0, "2001:db8::9", "::"),
        (64, "203.0.113.9", "203.0.113.9"),
        (64, "::ffff:203.0.113.9", "203.0.113.9"),
    ] {
        let client_ip = ClientIp::new().ipv6_prefix(prefix);
        let group: IpAddr = group.parse().unwrap();
        assert_eq!(client_ip.group(address.parse().unwrap()), group, "{address}/{prefix}");
    }
    assert_eq!(
        ClientIp::default().group("2001:db8::1:0:0:0:1".parse().unwrap()),
        "2001:db8:0:1::".parse::<IpAddr>().unwrap()
    );
}

#[test]
fn so_many_hops_are_followed_and_no_more() {
    let client_ip = behind(&["10.0.0.0/8"]);
    let through = |proxies: u8| {
        let hops: Vec<String> = (1..=proxies).map(|proxy| format!("10.0.1.{proxy}")).collect();
        let value = format!("203.0.113.9, {}", hops.join(", "));
        // The same whether it is one field or many.
        let one = find(&client_ip, PROXY, &[(XFF, &value)]);
        let fields: Vec<(&str, &str)> = value.split(", ").map(|hop| (XFF, hop)).collect();
        assert_eq!(find(&client_ip, PROXY, &fields), one);
        one.to_string()
    };
    assert_eq!(through(31), "203.0.113.9", "the client is the last of 32 hops");
    assert_eq!(through(32), "10.0.1.1", "and not looked for beyond");
    assert_eq!(through(200), "10.0.1.169");
}

proptest! {
    /// Whatever a client writes to the left, it stays who it is.
    #[test]
    fn what_a_client_writes_changes_nothing(lie in "[ -~]{0,60}", hops in 0_usize..4) {
        let client_ip = behind(&["10.0.0.0/8"]);
        let mut value = format!("{lie}, 203.0.113.9");
        for hop in 0..hops {
            value.push_str(&format!(", 10.0.0.{hop}"));
        }
        let expected: IpAddr = "203.0.113.9".parse().unwrap();
        prop_assert_eq!(find(&client_ip, PROXY, &[(XFF, &value)]), expected);
        prop_assert_eq!(find(&client_ip, PROXY, &[(XFF, &lie), (XFF, "203.0.113.9")]), expected);
        let forwarded = client_ip.trail(Trail::Forwarded);
        let value = format!("{lie}, for=\"203.0.113.9:80\";host=\"a,b\", for=10.0.0.2");
        prop_assert_eq!(find(&forwarded, PROXY, &[(FWD, &value)]), expected);
    }

    /// In any bytes at all there is an address, and be it the peer's.
    #[test]
    fn no_header_breaks_the_search(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
        for (trail, name) in [(Trail::XForwardedFor, XFF), (Trail::Forwarded, FWD)] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.clone());
            behind(&["0.0.0.0/0"]).trail(trail).find(PROXY.parse().unwrap(), &headers);
        }
    }
}

#[tokio::test]
async fn a_server_counts_clients_behind_its_proxy_and_no_others() {
    let layer = RateLimitLayer::per_ip("1/h")
        .unwrap()
        .client_ip(ClientIp::behind(["127.0.0.2".parse().unwrap()]));
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let server = Server::start(app).await;
    let proxy: IpAddr = "127.0.0.2".parse().unwrap();
    let other: IpAddr = "127.0.0.3".parse().unwrap();
    let ask = async |from, said| {
        server.send_from(from, with_headers("/", &[(XFF, said)])).await.status.as_u16()
    };
    assert_eq!(ask(proxy, "198.51.100.1").await, 200);
    assert_eq!(ask(proxy, "198.51.100.1").await, 429);
    assert_eq!(ask(proxy, "6.6.6.6, 198.51.100.1").await, 429, "the left end changes nothing");
    assert_eq!(ask(proxy, "198.51.100.2").await, 200);
    assert_eq!(ask(other, "198.51.100.3").await, 200);
    assert_eq!(ask(other, "198.51.100.4").await, 429, "whoever is not trusted is who it is");
}

/// Answers with the key of the bucket that was charged.
async fn bucket(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let admitted = request.extensions().get::<Admitted>().unwrap();
    let (_, charge, _) = admitted.charges().next().unwrap();
    Ok(Response::new(Body::from(charge.key.to_string())))
}

#[tokio::test]
async fn a_client_of_ipv6_counts_by_its_group_or_whole() {
    const CLIENT: &str = "2001:db8:1:2:3:4:5:6";
    let policies = [
        Policy::builder().rule(Rule::new("r").by("ip").quota("9/min")),
        // Of several rules the first is told.
        Policy::builder()
            .rule(Rule::new("r").by("ip").quota("9/min"))
            .rule(Rule::new("all").quota("99/min")),
    ];
    for policy in policies {
        for (axes, prefix, expected) in [
            (Axes::new().client_ip("ip"), None, "r:ip=2001%3Adb8%3A1%3A2%3A%3A"),
            (Axes::new().client_ip("ip"), Some(48), "r:ip=2001%3Adb8%3A1%3A%3A"),
            (Axes::new().client_address("ip"), None, "r:ip=2001%3Adb8%3A1%3A2%3A3%3A4%3A5%3A6"),
        ] {
            let client_ip = prefix.map_or_else(ClientIp::new, |p| ClientIp::new().ipv6_prefix(p));
            let layer = RateLimitLayer::new(gate_on(clock(), policy.clone()));
            let layer = layer.axes(axes).client_ip(client_ip);
            let service = ServiceBuilder::new().layer(layer).service_fn(bucket);
            let mut request = plain("/");
            request.extensions_mut().insert(PeerAddr(SocketAddr::new(CLIENT.parse().unwrap(), 1)));
            assert_eq!(send(&service, request).await.text, expected);
        }
    }
}

#[tokio::test]
async fn a_peer_is_taken_from_the_layers_function_then_from_whoever_put_it_then_from_axum() {
    let address = |last: u8| SocketAddr::from(([192, 0, 2, last], 1));
    for axes in [Axes::new().client_ip("ip"), Axes::new().client_address("ip")] {
        let layer = || RateLimitLayer::new(gate(Rule::new("r").by("ip").quota("9/min")));
        let usual = layer().axes(axes.clone());
        let told = layer().axes(axes).peer(move |_| Some(address(3).ip()));
        let [usual, told] =
            [usual, told].map(|layer| ServiceBuilder::new().layer(layer).service_fn(bucket));
        let by_axum = || {
            let mut request = plain("/");
            request.extensions_mut().insert(ConnectInfo(address(1)));
            request
        };
        let by_both = || {
            let mut request = by_axum();
            request.extensions_mut().insert(PeerAddr(address(2)));
            request
        };
        assert_eq!(send(&usual, by_axum()).await.text, "r:ip=192.0.2.1");
        assert_eq!(send(&usual, by_both()).await.text, "r:ip=192.0.2.2");
        assert_eq!(send(&told, by_both()).await.text, "r:ip=192.0.2.3");
    }
}
