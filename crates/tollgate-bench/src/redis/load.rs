//! A fixed number of requests in flight until so many were made.

use std::cell::Cell;
use std::io;
use std::time::Instant;

use futures_util::future::try_join_all;
use tokio::task::unconstrained;
use tollgate_testkit::redis::Server;

use super::contender::Contender;

/// Where so many requests are under way, only one in [`SAMPLED`] is timed: reading the clock twice takes
/// as long as a decision that needs no Redis.
const MANY: usize = 64;
const SAMPLED: usize = 64;

/// One run of one contender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Decisions per second.
    pub(crate) per_second: f64,
    /// Half of the decisions took no longer, in µs.
    pub(crate) p50: f64,
    /// All but one in a hundred took no longer, in µs.
    pub(crate) p99: f64,
    /// Processor time of the server per decision, in µs.
    pub(crate) redis_micros: f64,
    /// Those that were granted.
    pub(crate) granted: u64,
}

impl Measured {
    /// The median of each figure; what was granted is added up.
    pub(crate) fn median(runs: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(figure).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self {
            per_second: of(|run| run.per_second),
            p50: of(|run| run.p50),
            p99: of(|run| run.p99),
            redis_micros: of(|run| run.redis_micros),
            granted: runs.iter().map(|run| run.granted).sum(),
        }
    }
}

/// Makes `requests` requests, `in_flight` of them at any time.
pub(crate) async fn run(
    contender: &Contender,
    server: &Server,
    in_flight: usize,
    requests: usize,
) -> io::Result<Measured> {
    let next = Cell::new(0);
    let worker = |_| async {
        let (mut nanos, mut granted) = (Vec::with_capacity(requests / in_flight + 8), 0_u64);
        while next.get() < requests {
            let request = next.replace(next.get() + 1);
            let start = (in_flight < MANY || request.is_multiple_of(SAMPLED)).then(Instant::now);
            granted += u64::from(contender.ask(request).await?);
            nanos.extend(start.map(|start| start.elapsed().as_nanos() as u64));
        }
        io::Result::Ok((nanos, granted))
    };
    let before = cpu_micros(server)?;
    let start = Instant::now();
    // All are one task, which the runtime would have pause after every so many replies. Callers that are
    // tasks of their own, as those of a server are, do not meet that.
    let workers = unconstrained(try_join_all((0..in_flight).map(worker))).await?;
    let elapsed = start.elapsed();
    let redis_micros = (cpu_micros(server)? - before) / requests as f64;
    let granted = workers.iter().map(|(_, granted)| granted).sum();
    let mut nanos: Vec<u64> = workers.into_iter().flat_map(|(nanos, _)| nanos).collect();
    nanos.sort_unstable();
    let percentile = |share: usize| nanos[(nanos.len() - 1) * share / 100] as f64 / 1e3;
    Ok(Measured {
        per_second: requests as f64 / elapsed.as_secs_f64(),
        p50: percentile(50),
        p99: percentile(99),
        redis_micros,
        granted,
    })
}

/// Processor time the server has used so far, in µs.
fn cpu_micros(server: &Server) -> io::Result<f64> {
    let seconds = |name| server.info(name).and_then(|value| value.parse::<f64>().ok());
    let seconds = seconds("used_cpu_sys").zip(seconds("used_cpu_user"));
    let (system, user) = seconds.ok_or_else(|| io::Error::other("no processor time in INFO"))?;
    Ok((system + user) * 1e6)
}
