//! What a refused request is answered with.

use bytes::Bytes;
use http::{Method, Response, StatusCode, Version};
use tollgate::gate::Reason;
use tollgate::{Admission, Micros, Provenance, Retry};

use crate::head::Head;
use crate::headers::{self, Dialect, Told};

mod grpc;
mod problem;

/// Why a request is refused, for those who write the answer themselves.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    pub(crate) admission: &'a Admission,
    pub(crate) cause: Cause,
}

/// What kept a request from going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A limit.
    Limit,
    /// A list of the policy, or an axis a rule cannot do without.
    Policy,
    /// The store cannot be asked, and a rule refuses then.
    StoreDown,
    /// It should have been held, but as many as may be are held already.
    Crowded,
}

impl<'a> Refusal<'a> {
    /// A refusal by an admission.
    pub(crate) fn of(admission: &'a Admission) -> Self {
        let blind = || admission.binding().is_none_or(|(_, outcome)| outcome.reading.is_none());
        let cause = match admission.provenance() {
            Provenance::Policy => Cause::Policy,
            Provenance::Fallback if blind() => Cause::StoreDown,
            _ => Cause::Limit,
        };
        Self { admission, cause }
    }

    /// The admission, with its rules and numbers.
    pub fn admission(&self) -> &'a Admission {
        self.admission
    }

    /// What kept the request from going on.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// 429, or 503 where it is not the client who asked too much.
    pub fn status(&self) -> StatusCode {
        match self.cause {
            Cause::Limit | Cause::Policy => StatusCode::TOO_MANY_REQUESTS,
            Cause::StoreDown | Cause::Crowded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// When to try again.
    pub fn retry(&self) -> Retry {
        match self.cause {
            Cause::Crowded => Retry::After(self.admission.delay()),
            _ => self.admission.retry(),
        }
    }

    /// The rule that cannot do without an axis, and the axis this request lacks, if that is why.
    pub fn missing(&self) -> Option<(&'a str, &'a str)> {
        match self.admission.reason() {
            Some(Reason::MissingAxis { rule, axis }) => Some((rule.name(), axis)),
            _ => None,
        }
    }

    /// The names of the rules that refused, the one that decided first.
    pub fn rules(&self) -> impl Iterator<Item = &'a str> {
        let admission = self.admission;
        let binding = admission.decision().binding();
        let rules = move || admission.outcomes().enumerate();
        let refusing = rules().filter(move |(index, (_, outcome))| {
            Some(*index) != binding && !outcome.verdict.is_allow() && can_refuse(outcome)
        });
        let first = binding.and_then(|index| rules().nth(index));
        let names = first.into_iter().chain(refusing).map(|(_, (rule, _))| rule.name());
        let lacking = self.missing().map(|(rule, _)| rule);
        lacking.into_iter().chain(names.filter(move |_| !admission.is_allowed()))
    }

    /// `Retry-After` in whole seconds; never zero.
    fn retry_after_secs(&self) -> Option<u64> {
        match self.retry() {
            Retry::After(wait) => Some(wait.as_secs_ceil().max(1)),
            Retry::Now | Retry::Never => None,
        }
    }
}

fn can_refuse(outcome: &tollgate::Outcome) -> bool {
    outcome.enforcement != tollgate::Enforcement::Shadow
}

/// Writes the body of a refusal.
pub(crate) type Write = dyn Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync;

/// The content type of gRPC calls, up to their format.
const GRPC: &[u8] = b"application/grpc";

/// The language a client is answered in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
}

impl Protocol {
    /// That of a request. Calls of gRPC are posted over HTTP/2, and whoever writes its content type
    /// elsewhere is answered as everybody is there.
    pub(crate) fn of(request: &impl Head) -> Self {
        let is_call = || request.method() == Method::POST && request.version() == Version::HTTP_2;
        let content_type = request.headers().get(http::header::CONTENT_TYPE);
        match content_type.is_some_and(|value| is_grpc(value.as_bytes()) && is_call()) {
            true => Self::Grpc,
            false => Self::Http,
        }
    }
}

/// Whether a content type is gRPC's, with or without a format or parameters: not `grpc-web`.
fn is_grpc(content_type: &[u8]) -> bool {
    let prefix = content_type.split_at_checked(GRPC.len());
    prefix.is_some_and(|(prefix, rest)| {
        prefix.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    })
}

/// The whole answer to a refused request.
pub(crate) fn respond(
    refusal: &Refusal<'_>,
    protocol: Protocol,
    dialect: Dialect,
    write: Option<&Write>,
) -> Response<Bytes> {
    let mut response = match (protocol, write) {
        (Protocol::Grpc, _) => grpc::respond(refusal),
        (Protocol::Http, Some(write)) => write(refusal),
        (Protocol::Http, None) => problem::respond(refusal),
    };
    Told::of(refusal.admission, dialect).put(response.headers_mut());
    if refusal.cause == Cause::Crowded {
        headers::append(response.headers_mut(), headers::retry_later(refusal.retry_after_secs()));
    }
    response
}

/// What the policy alone refused, in words.
fn not_admitted(refusal: &Refusal<'_>, what: &str) -> String {
    match refusal.missing() {
        Some((rule, axis)) => {
            format!("the limit \"{rule}\" goes by \"{axis}\", which the {what} lacks")
        }
        None => format!("the {what} is not admitted"),
    }
}

/// The span a client has to wait for, in words.
fn again(retry: Retry) -> String {
    match retry {
        Retry::Now => "try again later".to_owned(),
        Retry::After(wait) => format!("try again in {}", rounded(wait)),
        Retry::Never => "it asks for more than is ever allowed at once".to_owned(),
    }
}

fn rounded(wait: Micros) -> Micros {
    Micros::from_millis(wait.as_millis_ceil())
}
