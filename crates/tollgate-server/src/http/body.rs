//! A request's body as bytes: bounded in size and in time.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::problem::Problem;

/// The largest body. Sixteen charges with the longest keys fit several times over.
const MAX_BODY: usize = 64 * 1024;

/// How much of a body that is too large is read and thrown away. A client that is still sending
/// when the connection is closed may never see why.
const MAX_DISCARD: usize = 1024 * 1024;

/// Reads the whole body, for no longer than `limit`.
pub(super) async fn read(request: Request, limit: Duration) -> Result<Bytes, Problem> {
    let waits = request.headers().contains_key(header::EXPECT);
    let body = request.into_body();
    // A client that asks before it sends is spared the sending.
    if waits && body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    timeout(limit, collect(body)).await.unwrap_or_else(|_| {
        let seconds = limit.as_secs_f32();
        let detail = format!("the body did not arrive within {seconds} s; send it at once");
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail))
    })
}

async fn collect(mut body: Body) -> Result<Bytes, Problem> {
    match Limited::new(&mut body, MAX_BODY).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            // Best effort: whether it fits or not, the answer is the same.
            let _ = discard(Limited::new(&mut body, MAX_DISCARD)).await;
            Err(too_large())
        }
        Err(error) => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            format!("body: cut short or malformed ({error}); send all of it"),
        )),
    }
}

async fn discard(mut body: Limited<&mut Body>) -> Option<()> {
    while body.frame().await?.is_ok() {}
    None
}

fn too_large() -> Problem {
    let detail = format!("the body is larger than {MAX_BODY} bytes; send fewer or shorter charges");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}
