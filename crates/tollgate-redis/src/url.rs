//! Where Redis is, as an operator writes it.
//!
//! ```text
//! redis://[user:password@]host[:port][/database]
//! rediss://…                                           the same over TLS
//! unix:///path/to/socket[?database=N&user=…&password=…]
//! redis+sentinel://[user:password@]host[:port],host[:port]…/service[/database]
//! redis+cluster://[user:password@]host[:port],host[:port]…
//! rediss+sentinel://… and rediss+cluster://…           the same over TLS
//! ```
//!
//! After a `?` may stand, for TLS, `ca=FILE` (an authority to trust instead of the system's) and
//! `cert=FILE&key=FILE` (a certificate to show), and for sentinels that want a password of their own
//! `sentinel_user=…` and `sentinel_password=…`. Bytes that have a meaning in URLs are written `%XX`.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port Redis listens on unless told otherwise.
const SERVER_PORT: u16 = 6379;

/// The port sentinels listen on unless told otherwise.
const SENTINEL_PORT: u16 = 26379;

/// A parsed URL. What it prints is without passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    pub(crate) place: Place,
    pub(crate) login: Login,
    pub(crate) database: u32,
    pub(crate) tls: Option<Tls>,
}

/// What is found at a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Server(Address),
    Socket(PathBuf),
    Sentinels { addresses: Vec<Address>, service: String, login: Login },
    Cluster(Vec<Address>),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Who to be. Never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl Login {
    /// Whether there is a user without a password, who could not log in.
    fn is_half(&self) -> bool {
        self.user.is_some() && self.password.is_none()
    }
}

/// Files TLS needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) authority: Option<PathBuf>,
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}

/// Why a URL does not say where Redis is, and one that would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlError {
    // Never quotes a part that may hold a password.
    wrong: String,
    example: &'static str,
}

impl UrlError {
    /// What is wrong with it, in a few words that quote no password.
    pub fn wrong(&self) -> &str {
        &self.wrong
    }

    /// A URL of the same kind that is right.
    pub fn example(&self) -> &'static str {
        self.example
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "use this Redis URL: {}; write it like {:?}", self.wrong, self.example)
    }
}

impl Error for UrlError {}

/// What a scheme stands for.
#[derive(Clone, Copy)]
enum Shape {
    Server,
    Socket,
    Sentinels,
    Cluster,
}

/// Every scheme, what it stands for, and whether that speaks TLS.
const SCHEMES: [(&str, Shape, bool); 7] = [
    ("redis", Shape::Server, false),
    ("rediss", Shape::Server, true),
    ("unix", Shape::Socket, false),
    ("redis+sentinel", Shape::Sentinels, false),
    ("rediss+sentinel", Shape::Sentinels, true),
    ("redis+cluster", Shape::Cluster, false),
    ("rediss+cluster", Shape::Cluster, true),
];

impl Shape {
    fn example(self, tls: bool) -> &'static str {
        match (self, tls) {
            (Self::Server, false) => "redis://user:password@127.0.0.1:6379/0",
            (Self::Server, true) => {
                "rediss://user:password@redis.example:6379/0?ca=/etc/redis/ca.pem"
            }
            (Self::Socket, _) => "unix:///run/redis/redis.sock?database=0",
            (Self::Sentinels, false) => "redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/service/0",
            (Self::Sentinels, true) => {
                "rediss+sentinel://10.0.0.1:26379,10.0.0.2:26379/service/0?ca=/etc/redis/ca.pem"
            }
            (Self::Cluster, false) => "redis+cluster://10.0.0.1:6379,10.0.0.2:6379",
            (Self::Cluster, true) => {
                "rediss+cluster://10.0.0.1:6379,10.0.0.2:6379?ca=/etc/redis/ca.pem"
            }
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Sentinels => SENTINEL_PORT,
            Self::Server | Self::Socket | Self::Cluster => SERVER_PORT,
        }
    }
}

impl FromStr for RedisUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UrlError {
            wrong: "it has no scheme".into(),
            example: Shape::Server.example(false),
        })?;
        let known = SCHEMES.into_iter().find(|(known, ..)| known.eq_ignore_ascii_case(scheme));
        let (_, shape, tls) = known.ok_or_else(|| unknown_scheme(scheme))?;
        parse(shape, tls, rest)
            .map_err(|wrong| UrlError { wrong: wrong.told_of(rest), example: shape.example(tls) })
    }
}

/// Says which schemes there are, and shows a URL of the kind that seems to be meant.
fn unknown_scheme(scheme: &str) -> UrlError {
    // A scheme has neither; what has may be the beginning of a login.
    let told = if scheme.contains([':', '@']) { "…" } else { scheme };
    let (others, last) = (SCHEMES.map(|(known, ..)| known), SCHEMES.len() - 1);
    let wrong = format!(
        "the scheme {told:?} is none of {} and {}",
        others[..last].join(", "),
        others[last]
    );
    // `sentinel://` and `redis+sentinal://` both mean sentinels.
    let shape = match scheme.rsplit('+').next().and_then(|kind| kind.chars().next()) {
        Some('s') => Shape::Sentinels,
        Some('c') => Shape::Cluster,
        Some('u') => Shape::Socket,
        _ => Shape::Server,
    };
    let tls = scheme.starts_with("rediss");
    UrlError { wrong, example: shape.example(tls) }
}

/// What is wrong with what follows the scheme.
struct Wrong {
    // The part it is wrong with, where one can be named.
    part: Option<String>,
    what: &'static str,
}

impl Wrong {
    fn with(part: &str, what: &'static str) -> Self {
        Self { part: Some(part.to_owned()), what }
    }

    /// The complaint, without parts that may belong to a password: bytes of one that should have
    /// been escaped end up anywhere.
    fn told_of(self, rest: &str) -> String {
        let login_ends = rest.rfind('@');
        let host_ends = rest.find(['/', '?']);
        match (login_ends, host_ends) {
            (Some(login), Some(host)) if login > host => {
                "escape / and ? in the password as %2F and %3F".into()
            }
            _ => match self.part {
                Some(_) if login_ends.is_some() || rest.contains("password=") => {
                    format!("a part of it {}", self.what)
                }
                Some(part) => format!("{part:?} {}", self.what),
                None => self.what.into(),
            },
        }
    }
}

impl From<&'static str> for Wrong {
    fn from(what: &'static str) -> Self {
        Self { part: None, what }
    }
}

/// Parses what follows the scheme, or says what is wrong with it.
fn parse(shape: Shape, tls: bool, rest: &str) -> Result<RedisUrl, Wrong> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut query = Query::parse(query)?;
    let mut url = match shape {
        Shape::Socket => socket(rest)?,
        Shape::Server | Shape::Sentinels | Shape::Cluster => servers(shape, rest)?,
    };
    if let Shape::Socket = shape {
        url.login = Login { user: query.take("user"), password: query.take("password") };
        if url.login.is_half() {
            return Err("a user needs a password; write user=…&password=… after the ?".into());
        }
        if let Some(database) = query.take("database").or_else(|| query.take("db")) {
            url.database = database_number(&database)?;
        }
    }
    if let Place::Sentinels { login, .. } = &mut url.place {
        let (user, password) = (query.take("sentinel_user"), query.take("sentinel_password"));
        *login = Login { user, password };
        if login.is_half() {
            return Err("a sentinel_user needs a sentinel_password".into());
        }
    }
    if tls {
        let authority = query.take("ca").map(PathBuf::from);
        let certificate = match (query.take("cert"), query.take("key")) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            _ => return Err("cert and key go together".into()),
        };
        url.tls = Some(Tls { authority, certificate });
    }
    query.finish()?;
    Ok(url)
}

fn socket(path: &str) -> Result<RedisUrl, Wrong> {
    let path = decode(path)?;
    if !path.starts_with('/') {
        return Err("the path of the socket has to start with /".into());
    }
    Ok(RedisUrl {
        place: Place::Socket(path.into()),
        login: Login::default(),
        database: 0,
        tls: None,
    })
}

fn servers(shape: Shape, rest: &str) -> Result<RedisUrl, Wrong> {
    // A password may hold anything but a slash and the last @.
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match hosts.rsplit_once('@') {
        Some((login, hosts)) => (self::login(login)?, hosts),
        None => (Login::default(), hosts),
    };
    let addresses = hosts.split(',').map(|host| address(host, shape.default_port()));
    let mut addresses = addresses.collect::<Result<Vec<Address>, Wrong>>()?;
    let mut path = path.split('/');
    let place = match shape {
        Shape::Sentinels => {
            let service = decode(path.next().unwrap_or_default())?;
            if service.is_empty() {
                return Err("it does not name the service the sentinels watch".into());
            }
            Place::Sentinels { addresses, service, login: Login::default() }
        }
        Shape::Cluster => Place::Cluster(addresses),
        Shape::Server | Shape::Socket => match addresses.len() {
            1 => Place::Server(addresses.remove(0)),
            _ => return Err("several hosts need redis+sentinel:// or redis+cluster://".into()),
        },
    };
    let database = match path.next().unwrap_or_default() {
        "" => 0,
        number => database_number(number)?,
    };
    if database != 0 && matches!(place, Place::Cluster(_)) {
        return Err("a cluster has no databases but 0".into());
    }
    match path.next() {
        None | Some("") => Ok(RedisUrl { place, login, database, tls: None }),
        Some(_) => Err("its path has too many parts".into()),
    }
}

/// `user:password`, or the old way, a password alone after a colon.
fn login(text: &str) -> Result<Login, Wrong> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(decode(password)?)),
        None => (text, None),
    };
    let user = Some(decode(user)?).filter(|user| !user.is_empty());
    let login = Login { user, password };
    match login.is_half() {
        true => Err("a user needs a password; write user:password@ before the host".into()),
        false => Ok(login),
    }
}

/// `host`, `host:port`, `[IPv6]` or `[IPv6]:port`.
fn address(text: &str, default_port: u16) -> Result<Address, Wrong> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("an IPv6 address lacks its ]")?;
            (host, rest.strip_prefix(':').or(rest.is_empty().then_some("")))
        }
        None => match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return Err("an IPv6 address has to stand in [ ]".into());
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    if host.is_empty() {
        return Err("a host is missing".into());
    }
    let port = match port {
        Some("") => Ok(default_port),
        Some(port) => match port.parse() {
            Ok(0) | Err(_) => Err(Wrong::with(port, "is no port")),
            Ok(port) => Ok(port),
        },
        None => Err("after the ] of an IPv6 address comes its port".into()),
    };
    Ok(Address { host: host.to_owned(), port: port? })
}

fn database_number(text: &str) -> Result<u32, Wrong> {
    text.parse().map_err(|_| Wrong::with(text, "is no number of a database"))
}

/// The part after the question mark, consumed name by name.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Result<Self, Wrong> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| match pair.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), decode(value)?)),
            None => Err(Wrong::with(pair, "stands after the ? and has no =; write name=value")),
        });
        Ok(Self(pairs.collect::<Result<_, Wrong>>()?))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(place).1)
    }

    /// Refuses what nobody asked for.
    fn finish(self) -> Result<(), Wrong> {
        match self.0.first() {
            Some((name, _)) => Err(Wrong::with(name, "means nothing here")),
            None => Ok(()),
        }
    }
}

/// Replaces `%XX` by the byte it stands for.
fn decode(text: &str) -> Result<String, Wrong> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |at: usize| char::from(*rest.get(at)?).to_digit(16);
        let byte = digit(0).zip(digit(1)).map(|(high, low)| (high * 16 + low) as u8);
        bytes.push(byte.ok_or("after a % come two hexadecimal digits; % itself is %25")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "its %XX make no UTF-8".into())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.password {
            Some(_) => "Login(…)",
            None => "Login(nobody)",
        })
    }
}

impl fmt::Display for RedisUrl {
    /// The URL without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = if self.tls.is_some() { "s" } else { "" };
        let list = |addresses: &[Address]| {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            addresses.join(",")
        };
        match &self.place {
            Place::Server(address) => write!(f, "redis{secure}://{address}")?,
            Place::Socket(path) => write!(f, "unix://{}", path.display())?,
            Place::Sentinels { addresses, service, .. } => {
                write!(f, "redis{secure}+sentinel://{}/{service}", list(addresses))?;
            }
            Place::Cluster(addresses) => {
                write!(f, "redis{secure}+cluster://{}", list(addresses))?;
            }
        }
        match (&self.place, self.database) {
            (_, 0) => Ok(()),
            (Place::Socket(_), database) => write!(f, "?database={database}"),
            (_, database) => write!(f, "/{database}"),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> RedisUrl {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        text.parse::<RedisUrl>().expect_err(text).to_string()
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn every_shape_is_understood() {
        assert_eq!(parsed("redis://localhost").place, Place::Server(address("localhost", 6379)));
        assert_eq!(parsed("redis://[::1]:7000/").place, Place::Server(address("::1", 7000)));
        let url = parsed("redis://gate:p%40ss%3A@10.0.0.1:7000/3");
        assert_eq!(url.place, Place::Server(address("10.0.0.1", 7000)));
        assert_eq!(url.login.user.as_deref(), Some("gate"));
        assert_eq!(url.login.password.as_deref(), Some("p@ss:"));
        assert_eq!((url.database, url.tls), (3, None));
        assert_eq!(parsed("redis://:secret@h").login.password.as_deref(), Some("secret"));
        assert_eq!(parsed("redis://:secret@h").login.user, None);

        let url = parsed("rediss://h?ca=/etc/ca.pem&cert=/c&key=/k");
        let tls = url.tls.unwrap();
        assert_eq!(tls.authority, Some("/etc/ca.pem".into()));
        assert_eq!(tls.certificate, Some(("/c".into(), "/k".into())));

        let url = parsed("unix:///run/redis.sock?database=2&user=u&password=p");
        assert_eq!(url.place, Place::Socket("/run/redis.sock".into()));
        assert_eq!((url.database, url.login.user.as_deref()), (2, Some("u")));

        let url = parsed("redis+sentinel://u:p@a,b:7000/main/1?sentinel_password=x");
        let Place::Sentinels { addresses, service, login } = url.place else { panic!() };
        assert_eq!(addresses, [address("a", 26379), address("b", 7000)]);
        assert_eq!((service.as_str(), login.password.as_deref()), ("main", Some("x")));
        assert_eq!((url.database, url.login.user.as_deref()), (1, Some("u")));

        let url = parsed("rediss+cluster://a:1,[2001:db8::1]:2");
        assert_eq!(url.place, Place::Cluster(vec![address("a", 1), address("2001:db8::1", 2)]));
        assert!(url.tls.is_some());

        assert_eq!(parsed("REDIS://a").place, Place::Server(address("a", 6379)));
    }

    #[test]
    fn a_wrong_one_is_refused_with_what_is_wrong_and_a_right_one() {
        for (text, wrong, example) in [
            ("localhost:6379", "no scheme", "redis://user:password@127.0.0.1:6379/0"),
            ("http://localhost", "the scheme \"http\" is none of", "redis://"),
            ("redis://", "a host is missing", "redis://"),
            ("redis://a,b", "several hosts", "redis://"),
            ("redis://a:port", "\"port\" is no port", "redis://"),
            ("redis://a:70000", "\"70000\" is no port", "redis://"),
            ("redis://a/x", "\"x\" is no number of a database", "redis://"),
            ("redis://a/1/2", "too many parts", "redis://"),
            ("redis://::1", "has to stand in [ ]", "redis://"),
            ("redis://user@a", "a user needs a password", "redis://"),
            ("redis://a?ca=/x", "\"ca\" means nothing here", "redis://"),
            ("rediss://a?cert=/x", "cert and key go together", "rediss://"),
            ("rediss+cluster://a/1", "no databases but 0", "rediss+cluster://"),
            ("redis://u:%zz@a", "two hexadecimal digits", "redis://"),
            ("redis://u:%+f@a", "two hexadecimal digits", "redis://"),
            ("redis://a:0", "\"0\" is no port", "redis://"),
            ("unx:///run/redis.sock", "the scheme \"unx\" is none of", "unix:///"),
            ("redis+sentinal://a/s", "is none of", "redis+sentinel://"),
            ("unix:///s?user=gate", "write user=…&password=…", "unix:///"),
            (
                "redis+sentinel://a/s?sentinel_user=u",
                "needs a sentinel_password",
                "redis+sentinel://",
            ),
            ("unix://redis.sock", "has to start with /", "unix:///"),
            ("redis+sentinel://a", "does not name the service", "redis+sentinel://"),
            ("redis+cluster://a/1", "no databases but 0", "redis+cluster://"),
        ] {
            let error = refused(text);
            assert!(error.contains(wrong), "{text}: {error}");
            assert!(error.contains(example), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        for text in [
            "redis://gate:hunter2@h/x",
            "redis://gate:hunter2@:1",
            "redis://gate:hunter2@h?hunter=1",
            "redis+sentinel://gate:hunter2@h",
            "redis://gate:1@hunter2:x",
            "unix:///s?password=a&hunter2",
            "unix:///s?password=a&hunter2=b",
            "gate:hunter2@h",
            "gate:hunter2@h://h",
            "gate:hunter2://h",
        ] {
            assert!(!refused(text).contains("hunter2"), "{}", refused(text));
        }
        // What ends a host also ends a password, unless it is escaped.
        for text in [
            "redis://gate:hunter2/abc@h",
            "redis://gate:123/hunter2@h",
            "redis://gate:hunter2?x@h",
            "redis://gate:123?hunter2@h",
            "redis://gate:123?hunter2=1@h",
            "redis+cluster://gate:1/hunter2@h",
            "redis+sentinel://gate:1/2/hunter2@h/s",
        ] {
            let error = refused(text);
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("escape / and ? in the password as %2F and %3F"), "{error}");
        }
        for text in [
            "redis://gate:hunter2@h/1",
            "unix:///s?user=u&password=hunter2",
            "redis+sentinel://h/s?sentinel_password=hunter2",
            "redis+cluster://:hunter2@h",
        ] {
            let url = parsed(text);
            let printed = format!("{url} {url:?} {:?} {:?}", url.login, url.place);
            assert!(!printed.contains("hunter2"), "{printed}");
        }
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        for text in [
            "redis://h:1/3",
            "unix:///s?database=2",
            "redis+sentinel://[::1]:1,b:2/s/1",
            "redis+cluster://a:1,b:2",
        ] {
            assert_eq!(parsed(text).to_string(), text);
        }
    }
}
