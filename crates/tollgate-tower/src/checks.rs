//! What a layer finds out about its own surroundings, told once.
//!
//! Some mistakes cannot be seen when a service is built, and show only as limits that hit the wrong
//! people. A layer looks out for them and tells each [`Check`] once, as a `tracing` event with its
//! code and a link, and to whoever [asked](crate::RateLimitLayer::on_check). Requests are served all
//! the same. The one that takes a limit's meaning away, [`Check::PeerAddressMissing`], is an error
//! there, and stands on stderr where nobody listens to such events.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The first so many requests are looked at for what costs something to find out.
const A_WHILE: u32 = 10_000;

/// A mistake in how a layer is wired, with a code that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Check {
    /// TG101: a limit goes by address, and requests come without their peer's.
    ///
    /// axum: serve `router.into_make_service_with_connect_info::<SocketAddr>()`. tonic: enable the
    /// feature `tonic` of this crate. hyper: put a [`PeerAddr`](crate::PeerAddr) into the extensions
    /// of each request. Until then all such requests count as one client, whose address is `unknown`;
    /// rules with [`Missing::Deny`](tollgate::Missing::Deny) refuse them.
    PeerAddressMissing,
    /// TG102: a request came with `X-Forwarded-For` or `Forwarded`, and no proxy is trusted.
    ///
    /// If there is a proxy in front, all its clients count as one: name its network with
    /// [`ClientIp::behind`](crate::ClientIp::behind). If there is none, somebody is trying to be
    /// somebody else, in vain, and all is well.
    ForwardedButNothingTrusted,
    /// TG103: a request met the same layer twice, and was charged twice.
    ///
    /// A layer was added to a router and again to one nested in it. Keep one of them, or give the
    /// other a gate of its own.
    AppliedTwice,
    /// TG104: a refusal came from a window of a second or less, where `Retry-After` can only say 1.
    ///
    /// Header fields have whole seconds. Clients that go by them wait for longer than they have to;
    /// those that read `retry_ms` in the body do not. Write `10/s burst 20` for `10/s` (a token bucket,
    /// which rules have to [choose](tollgate::Rule::algorithm)): what a client leaves by coming late is
    /// still there then. Or let requests [wait](tollgate::Rule::wait).
    WindowTooShort,
    /// TG105: the policy speaks of an axis that the layer has no source for.
    ///
    /// Rules that go by it see it missing from every request. Add it to the
    /// [`Axes`](crate::Axes), or correct its name.
    AxisWithoutSource,
}

impl Check {
    /// Every check.
    pub const ALL: [Self; 5] = [
        Self::PeerAddressMissing,
        Self::ForwardedButNothingTrusted,
        Self::AppliedTwice,
        Self::WindowTooShort,
        Self::AxisWithoutSource,
    ];

    /// The code, which stays what it is.
    pub const fn code(self) -> &'static str {
        match self {
            Self::PeerAddressMissing => "TG101",
            Self::ForwardedButNothingTrusted => "TG102",
            Self::AppliedTwice => "TG103",
            Self::WindowTooShort => "TG104",
            Self::AxisWithoutSource => "TG105",
        }
    }

    /// Where it is explained.
    pub fn link(self) -> String {
        let page = "https://docs.rs/tollgate-tower/latest/tollgate_tower/checks/enum.Check.html";
        format!("{page}#variant.{self:?}")
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerAddressMissing => {
                "requests come without their peer's address, and all clients count as one; with axum \
                 serve `into_make_service_with_connect_info::<SocketAddr>()`"
            }
            Self::ForwardedButNothingTrusted => {
                "a request was forwarded and no proxy is trusted; name yours with `ClientIp::behind`"
            }
            Self::AppliedTwice => "a request met the same layer twice; add it once",
            Self::WindowTooShort => {
                "a window of a second or less refused, and `Retry-After` can only say 1; \
                 use a token bucket of several seconds (\"10/s burst 20\")"
            }
            Self::AxisWithoutSource => {
                "the policy speaks of an axis the layer has no source for; add it to the axes"
            }
        })
    }
}

/// Who wants to know.
pub(crate) type Tell = dyn Fn(Check) + Send + Sync;

/// Which checks have been told.
#[derive(Clone, Default)]
pub(crate) struct Checks {
    // Shared by all clones of a layer.
    seen: Arc<Seen>,
    tell: Option<Arc<Tell>>,
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    // A bit per check, for what was told and for what need not be looked for again.
    told: AtomicU8,
    done: AtomicU8,
    // How often what costs something to find out was looked for.
    looked: AtomicU32,
}

impl Checks {
    pub(crate) fn set_tell(&mut self, tell: Arc<Tell>) {
        self.tell = Some(tell);
    }

    /// Tells `check` if `found` finds it and it has not been told.
    ///
    /// The order of telling does not matter to anybody, hence relaxed.
    pub(crate) fn look(&self, check: Check, found: impl FnOnce() -> bool) {
        if self.seen.told.load(Ordering::Relaxed) & check.bit() == 0 && found() {
            self.tell(check);
        }
    }

    /// The same for what shows on the first request, and on no later one.
    pub(crate) fn look_once(&self, check: Check, found: impl FnOnce() -> bool) {
        let is_done = |done: &AtomicU8| done.load(Ordering::Relaxed) & check.bit() != 0;
        if !is_done(&self.seen.done) {
            self.seen.done.fetch_or(check.bit(), Ordering::Relaxed);
            self.look(check, found);
        }
    }

    /// Whether to look for what shows early if it ever does.
    #[inline(always)]
    pub(crate) fn are_early(&self) -> bool {
        self.seen.looked.load(Ordering::Relaxed) < A_WHILE
    }

    /// Counts a request that was looked at while it was early.
    pub(crate) fn looked(&self) {
        self.seen.looked.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    fn tell(&self, check: Check) {
        if self.seen.told.fetch_or(check.bit(), Ordering::Relaxed) & check.bit() != 0 {
            return;
        }
        match check {
            Check::PeerAddressMissing => tell_loudly(check),
            _ => tracing::warn!(code = check.code(), link = check.link(), "{check}"),
        }
        if let Some(tell) = &self.tell {
            tell(check);
        }
    }
}

/// Tells of a mistake as an error; on stderr where no subscriber would show it.
fn tell_loudly(check: Check) {
    tracing::error!(code = check.code(), link = check.link(), "{check}");
    if !tracing::enabled!(tracing::Level::ERROR) {
        eprintln!("error: {}: {check}; see {}", check.code(), check.link());
    }
}
