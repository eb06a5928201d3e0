//! What is told about a request: where the value of each axis comes from.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use smallvec::SmallVec;
use tollgate::Subject;
use tollgate::gate::PlainValue;

use crate::head::Head;

mod address;
mod cookie;
mod host;
mod source;

use address::{AddressText, ShortText};
pub(crate) use host::spell as spell_host;
use source::{Detail, Find, LookUp, Source, Value};

/// What stands for the address of whoever's peer nobody has told; proxies spell it so too.
const UNKNOWN: &str = "unknown";

/// Which axes a request has, and where their values come from.
///
/// Axes are the names the rules of a policy speak of. One that finds nothing is missing, and the
/// rule's [`Missing`](tollgate::Missing) says what then.
///
/// ```
/// use http::HeaderName;
/// use tollgate_tower::Axes;
///
/// #[derive(Clone)]
/// struct User { id: String }
///
/// let axes = Axes::new()
///     .client_ip("ip")
///     .header("key", HeaderName::from_static("x-api-key"))
///     .extension("user", |user: &User| Some(user.id.as_str().into()))
///     .with("version", |request| request.uri.path().split('/').nth(1).map(Into::into));
/// ```
#[derive(Clone, Default)]
pub struct Axes {
    // In the order they were added; of two for one axis the later counts.
    sources: Vec<(Box<str>, Source)>,
    asked: Asked,
}

/// What any of the sources needs, so that it need not be found out for every request.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    group: bool,
    whole: bool,
    parts: bool,
    elsewhere: bool,
}

impl Axes {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those that need no explanation: `ip`, `method`, `path` and `route`.
    pub fn standard() -> Self {
        Self::new().client_ip("ip").method("method").path("path").route("route")
    }

    /// Those of calls going out: `host`, `method` and `path`.
    pub fn outgoing() -> Self {
        Self::new().host("host").method("method").path("path")
    }

    /// The client's address as [`ClientIp`](crate::ClientIp) finds and groups it.
    ///
    /// Where nobody has told the peer's address it is `unknown`: all such requests are one client, and
    /// the axis is missing only for rules that [refuse](tollgate::Missing::Deny) then.
    ///
    /// Of IPv6 it is the first address of the group, so a list in a policy can name networks as wide
    /// as a group or wider. To list single IPv6 addresses take
    /// [`client_address`](Axes::client_address).
    pub fn client_ip(self, axis: impl Into<Box<str>>) -> Self {
        self.source(axis, Source::Client(Detail::Group))
    }

    /// The client's whole address, not grouped.
    pub fn client_address(self, axis: impl Into<Box<str>>) -> Self {
        self.source(axis, Source::Client(Detail::Whole))
    }

    /// The first value of a header; of a gRPC call, of its metadata. Of one that is no text, which is
    /// UTF-8 here, bytes are escaped (`\xff`).
    pub fn header(self, axis: impl Into<Box<str>>, name: HeaderName) -> Self {
        self.source(axis, Source::Header(name))
    }

    /// The value of a cookie; no text as with [`header`](Axes::header).
    pub fn cookie(self, axis: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Self {
        self.source(axis, Source::Cookie(name.into()))
    }

    /// The method.
    pub fn method(self, axis: impl Into<Box<str>>) -> Self {
        self.source(axis, Source::Method)
    }

    /// The host a request is for, by its target or its `Host` header: in small letters, without port
    /// and without a dot at its end, so that one host has one spelling. Clients choose it.
    pub fn host(self, axis: impl Into<Box<str>>) -> Self {
        self.source(axis, Source::Host)
    }

    /// The path as it was sent, also in a router that axum has nested in another. Clients choose it;
    /// to count by it, match routes instead.
    pub fn path(self, axis: impl Into<Box<str>>) -> Self {
        self.source(axis, Source::Path)
    }

    /// The route a request matched (`/users/{id}`) where axum tells it, else the path.
    pub fn route(self, axis: impl Into<Box<str>>) -> Self {
        self.source(axis, Source::Route)
    }

    /// Out of an extension that something further out has put into the request.
    pub fn extension<T: Send + Sync + 'static>(
        self,
        axis: impl Into<Box<str>>,
        value: impl for<'r> Fn(&'r T) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    ) -> Self {
        let find: Arc<Find> = Arc::new(move |request| value(request.extensions.get::<T>()?));
        self.source(axis, Source::Find(find))
    }

    /// By a function.
    pub fn with(
        self,
        axis: impl Into<Box<str>>,
        find: impl for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    ) -> Self {
        self.source(axis, Source::Find(Arc::new(find)))
    }

    /// By a function that has to wait: a tier out of a database. The request waits for it, so it
    /// should have a deadline and a cache of its own.
    ///
    /// Every request is looked up, before any rule is asked, for the value may decide which rules
    /// apply. Put cheap limits, such as [`per_ip`](crate::RateLimitLayer::per_ip), into a layer further
    /// out: whoever is refused there is not looked up.
    ///
    /// ```
    /// use tollgate_tower::RateLimitLayer;
    ///
    /// # fn layers(app: axum::Router, by_plan: RateLimitLayer) -> Result<axum::Router, tollgate::policy::PolicyErrors> {
    /// // In axum the layer added last is the outermost.
    /// let app = app.layer(by_plan).layer(RateLimitLayer::per_ip("600/min")?);
    /// # Ok(app) }
    /// ```
    pub fn look_up<F>(
        self,
        axis: impl Into<Box<str>>,
        look_up: impl Fn(&Parts) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        let look_up: Arc<LookUp> = Arc::new(move |request| Box::pin(look_up(request)));
        self.source(axis, Source::LookUp(look_up))
    }

    /// The names of all axes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|(axis, _)| &**axis)
    }

    fn source(mut self, axis: impl Into<Box<str>>, source: Source) -> Self {
        let axis = axis.into();
        self.sources.retain(|(known, _)| *known != axis);
        self.sources.push((axis, source));
        self.asked =
            self.sources.iter().fold(Asked::default(), |asked, (_, source)| match source {
                Source::Client(Detail::Group) => Asked { group: true, ..asked },
                Source::Client(Detail::Whole) => Asked { whole: true, ..asked },
                Source::Find(_) => Asked { parts: true, ..asked },
                Source::LookUp(_) => Asked { elsewhere: true, ..asked },
                _ => asked,
            });
        self
    }

    /// Whether any value has to be waited for.
    pub(crate) fn must_wait(&self) -> bool {
        self.asked.elsewhere
    }

    /// Whether any value is found by a function, which wants to see a request without its body.
    pub(crate) fn wants_parts(&self) -> bool {
        self.asked.parts
    }

    /// Whether any value is an address, or the group of one.
    pub(crate) fn has_address(&self) -> bool {
        self.asked.whole || self.asked.group
    }

    /// Whether an axis of this name is an address, or the group of one.
    pub(crate) fn is_address(&self, axis: &str) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|(known, source)| **known == *axis && matches!(source, Source::Client(_)))
    }

    /// The texts that are asked for of a client at `address`, in the group of `group`.
    pub(crate) fn client(&self, address: IpAddr, group: IpAddr) -> Client {
        Client {
            address: self.asked.whole.then(|| AddressText::new(address)),
            group: self.asked.group.then(|| AddressText::new(group)),
            is_unknown: false,
        }
    }

    /// Adds to `subject` what stands for an address that is not known.
    pub(crate) fn describe_unknown<'r>(&'r self, subject: &mut Subject<'r>) {
        for (axis, source) in &self.sources {
            if let Source::Client(_) = source {
                subject.set(axis, UNKNOWN);
            }
        }
    }

    /// The value of one axis; `None` where it takes more to find out.
    #[inline(always)]
    pub(crate) fn value_of<'r>(
        &'r self,
        axis: &[u8],
        request: &'r impl Head,
        peer: impl FnOnce() -> Option<Ipv4Addr>,
    ) -> Option<PlainValue<'r>> {
        match self.sources.iter().find(|(known, _)| is_same(known.as_bytes(), axis))? {
            // Of IPv4 an address is a group of its own.
            (_, Source::Client(_)) => Some(ShortText::new(peer()?).into()),
            (_, source) => source.value_of_others(request).map(|value| value.as_bytes().into()),
        }
    }

    /// What has to be waited for, one after another.
    pub(crate) async fn look_all_up(&self, request: &Parts) -> LookedUp<'_> {
        let mut found = LookedUp::new();
        for (axis, source) in &self.sources {
            if let Source::LookUp(look_up) = source
                && let Some(value) = look_up(request).await
            {
                found.push((axis, value));
            }
        }
        found
    }

    /// What functions find in a request.
    pub(crate) fn find_all<'r>(&'r self, request: &'r Parts) -> Found<'r> {
        let mut found = Found::new();
        for (axis, source) in &self.sources {
            if let Source::Find(find) = source
                && let Some(value) = find(request)
            {
                found.push((axis, value));
            }
        }
        found
    }

    /// Adds what a request says of itself to `subject`. True where some of it has to be
    /// [spelled anew](Self::spell) first, and is left out.
    #[inline]
    #[must_use]
    pub(crate) fn describe<'r>(
        &'r self,
        subject: &mut Subject<'r>,
        request: &'r impl Head,
        client: &'r Client,
    ) -> bool {
        let mut is_odd = false;
        for (axis, source) in &self.sources {
            match source.value(request, client) {
                Value::Text(value) => subject.set(axis, value),
                Value::Odd => is_odd = true,
                Value::Missing => {}
            }
        }
        is_odd
    }

    /// What may have to be spelled anew, as it counts.
    #[cold]
    pub(crate) fn spell(&self, request: &impl Head) -> Spelled<'_> {
        let sources = self.sources.iter();
        sources.filter_map(|(axis, source)| Some((&**axis, source.spell(request)?))).collect()
    }
}

/// Values that had to be waited for.
pub(crate) type LookedUp<'a> = SmallVec<[(&'a str, String); 1]>;

/// Values that had to be spelled anew.
pub(crate) type Spelled<'a> = Vec<(&'a str, String)>;

/// Values that functions have found.
pub(crate) type Found<'a> = SmallVec<[(&'a str, Cow<'a, str>); 2]>;

/// A client's address as text, whole and grouped; `None` where it is not asked for, or even the peer's
/// is not known.
#[derive(Debug, Default)]
pub(crate) struct Client {
    address: Option<AddressText>,
    group: Option<AddressText>,
    // Whether a rule asks for it and it is not known.
    pub(crate) is_unknown: bool,
}

impl Client {
    /// One whose address a rule asks for, and nobody knows.
    pub(crate) fn unknown() -> Self {
        Self { is_unknown: true, ..Self::default() }
    }
}

/// Whether they are the same bytes, few as names are.
#[inline(always)]
fn is_same(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().eq(two)
}

impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
