//! Judges addresses of stores by the store they are for.

use std::io;

use tollgate_config::WrongUrl;
use tollgate_redis::{RedisStore, RedisUrl};

/// Whether Redis can be asked at this address, as far as can be told without asking it.
pub(crate) fn check(url: &str) -> Result<(), WrongUrl> {
    let read = url.parse::<RedisUrl>();
    read.map(drop).map_err(|error| WrongUrl {
        wrong: error.wrong().to_owned(),
        help: format!("write it like {:?}", error.example()),
    })
}

/// The same, and whether the files it names for TLS can be read here. A server that runs has read
/// them, and reads its policy again whether or not they are still there.
pub(crate) fn check_with_files(url: &str) -> Result<(), WrongUrl> {
    check(url)?;
    build(url).map_err(|wrong| WrongUrl {
        wrong,
        help: "name files that are there and hold what TLS needs".to_owned(),
    })
}

/// Makes the store and drops it. It would connect in the background, but nobody runs that.
fn build(url: &str) -> Result<(), String> {
    let idle = |error: io::Error| format!("failed to start a runtime: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(idle)?;
    let _within = runtime.enter();
    let builder = RedisStore::builder(url).map_err(|error| format!("failed to {error}"))?;
    builder.build().map(drop).map_err(|error| format!("failed to {error}"))
}
