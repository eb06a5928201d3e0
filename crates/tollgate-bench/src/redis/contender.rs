//! Who is measured: Tollgate, the scripts people write, and the bare round trip.

use std::fmt;
use std::io;

use redis::aio::MultiplexedConnection;
use tollgate::{Algorithm, Charge, ChargeSet, Cost, Limiter, Meter};
use tollgate_redis::RedisStore;
use tollgate_testkit::redis::Server;

use super::PATIENCE;

/// Distinct keys.
pub(crate) const KEYS: usize = 10_000;

/// The least a script can do that goes by the server's clock and keeps a bucket with a lifetime: what it
/// writes is as long as one of Tollgate's, and nothing is worked out.
const FLOOR: &str = "\
redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], 'twenty-eight bytes, as it is', 'PX', '3600000')
return 1";

/// What most people write for a fixed window.
const INCR_EXPIRE: &str = "\
local used = redis.call('INCR', KEYS[1])
if used == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if used > tonumber(ARGV[1]) then return 0 end
return 1";

/// What most people write for a token bucket: KEYS bucket; ARGV rate per second, burst, cost.
const HASH_BUCKET: &str = "\
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tokens = tonumber(bucket[1]) or burst
local ts = tonumber(bucket[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - ts) * rate)
local allowed = 0
if tokens >= cost then tokens = tokens - cost allowed = 1 end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 2000))
return {allowed, tostring(tokens)}";

/// What most people write for a log: KEYS log; ARGV period in µs, limit, a unique member.
const SORTED_SET_LOG: &str = "\
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local period = tonumber(ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - period)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], period / 1000)
return 1";

/// All there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The least one can ask of Redis.
    Incr,
    /// The least one can ask of a script.
    Empty,
    /// The least one can ask of a script that decides about a bucket.
    Floor,
    /// A counter with an expiry.
    IncrExpire,
    /// A token bucket in a hash.
    HashBucket,
    /// A log in a sorted set.
    SortedSetLog,
    /// Tollgate.
    Tollgate(Algorithm),
    /// Tollgate, three token buckets per request, all or nothing: a user's, the tenant's, everybody's.
    Nested,
    /// The same with three of the user's own, which no other request shares: as dear as three can be.
    Composite,
    /// Tollgate on one key that has no units left, asking Redis every time.
    RefusedAsking,
    /// The same, remembering the refusal.
    RefusedRemembering,
}

impl Kind {
    pub(crate) const ALL: [Self; 15] = [
        Self::Incr,
        Self::Empty,
        Self::Floor,
        Self::IncrExpire,
        Self::HashBucket,
        Self::SortedSetLog,
        Self::Tollgate(Algorithm::FixedWindow),
        Self::Tollgate(Algorithm::SlidingLog),
        Self::Tollgate(Algorithm::SlidingWindow),
        Self::Tollgate(Algorithm::TokenBucket),
        Self::Tollgate(Algorithm::LeakyBucket),
        Self::Nested,
        Self::Composite,
        Self::RefusedAsking,
        Self::RefusedRemembering,
    ];

    /// Those whose memory is weighed.
    pub(crate) const WEIGHED: [Self; 8] = [
        Self::IncrExpire,
        Self::HashBucket,
        Self::SortedSetLog,
        Self::Tollgate(Algorithm::FixedWindow),
        Self::Tollgate(Algorithm::SlidingLog),
        Self::Tollgate(Algorithm::SlidingWindow),
        Self::Tollgate(Algorithm::TokenBucket),
        Self::Tollgate(Algorithm::LeakyBucket),
    ];

    /// Who.
    pub(crate) const fn contender(self) -> &'static str {
        match self {
            Self::Incr => "INCR",
            Self::Empty => "empty EVALSHA",
            Self::Floor => "TIME, GET and SET script",
            Self::IncrExpire => "INCR+PEXPIRE script",
            Self::HashBucket => "hash script",
            Self::SortedSetLog => "sorted-set script",
            Self::Tollgate(_) => "tollgate",
            Self::Nested => "tollgate, user+tenant+all",
            Self::Composite => "tollgate, 3 of one user",
            Self::RefusedAsking => "tollgate, refused",
            Self::RefusedRemembering => "tollgate, refused, deny cache",
        }
    }

    /// How many times as many requests it is asked as others, so that a run takes a while.
    pub(crate) const fn repeats(self) -> usize {
        match self {
            Self::RefusedRemembering => 100,
            _ => 1,
        }
    }

    /// By which algorithm, if by any.
    pub(crate) const fn algorithm(self) -> &'static str {
        match self {
            Self::Incr | Self::Empty | Self::Floor => "none",
            Self::IncrExpire => Algorithm::FixedWindow.name(),
            Self::SortedSetLog => Algorithm::SlidingLog.name(),
            Self::Tollgate(algorithm) => algorithm.name(),
            Self::HashBucket
            | Self::Nested
            | Self::Composite
            | Self::RefusedAsking
            | Self::RefusedRemembering => Algorithm::TokenBucket.name(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.contender(), self.algorithm())
    }
}

/// A limiter under measurement.
pub(crate) enum Contender {
    /// Over one pipelined connection of the usual client.
    Plain(Plain),
    /// Over Tollgate's store.
    Tollgate(Tollgate),
}

impl Contender {
    /// One ready to be asked.
    pub(crate) async fn new(kind: Kind, server: &Server) -> io::Result<Self> {
        Ok(match kind {
            Kind::Incr => Self::Plain(Plain::new(server, Command::Incr).await?),
            Kind::Empty => Self::Plain(Plain::script(server, "return 1", &[]).await?),
            Kind::Floor => Self::Plain(Plain::script(server, FLOOR, &[]).await?),
            Kind::IncrExpire => {
                Self::Plain(Plain::script(server, INCR_EXPIRE, &["1000000", "3600000"]).await?)
            }
            Kind::HashBucket => {
                Self::Plain(Plain::script(server, HASH_BUCKET, &["1000", "1000000", "1"]).await?)
            }
            Kind::SortedSetLog => {
                let arguments = ["3600000000", "100000"];
                Self::Plain(Plain::script(server, SORTED_SET_LOG, &arguments).await?)
            }
            Kind::Tollgate(algorithm) => Self::Tollgate(Tollgate::new(server, algorithm)?),
            Kind::Nested => Self::Tollgate(Tollgate::nested(server)?),
            Kind::Composite => Self::Tollgate(Tollgate::composite(server)?),
            Kind::RefusedAsking => Self::Tollgate(Tollgate::refused(server, Remember::No).await?),
            Kind::RefusedRemembering => {
                Self::Tollgate(Tollgate::refused(server, Remember::Yes).await?)
            }
        })
    }

    /// Asks for one unit; whether it was granted.
    pub(crate) async fn ask(&self, request: usize) -> io::Result<bool> {
        match self {
            Self::Plain(plain) => plain.ask(request).await,
            Self::Tollgate(tollgate) => tollgate.ask(request).await,
        }
    }
}

/// The name of a key, in the form such keys have in practice.
fn name(key: usize) -> String {
    format!("tenant:{}:user:{}", key % 97, 100_000 + key)
}

/// The keys requests are about, made before the clock starts: spelling one takes longer than some
/// decisions.
struct Names(Vec<String>);

impl Names {
    fn new(of: impl Fn(usize) -> String) -> Self {
        Self((0..KEYS).map(of).collect())
    }

    /// The key of a request: all in turn, neighbours far apart.
    fn of(&self, request: usize) -> &str {
        const PRIME: usize = 7_368_787;
        &self.0[request * PRIME % KEYS]
    }
}

/// Commands as most people send them.
pub(crate) struct Plain {
    connection: MultiplexedConnection,
    command: Command,
    // So that contenders do not share buckets.
    namespace: String,
    names: Names,
}

enum Command {
    Incr,
    Script { sha: String, arguments: Vec<String> },
}

impl Plain {
    async fn new(server: &Server, command: Command) -> io::Result<Self> {
        let client = redis::Client::open(server.url()).map_err(io::Error::other)?;
        let connection = client.get_multiplexed_async_connection().await;
        let namespace = match &command {
            Command::Incr => "incr".to_owned(),
            Command::Script { sha, .. } => format!("plain:{}", &sha[..6]),
        };
        let connection = connection.map_err(io::Error::other)?;
        let names = Names::new(|key| format!("{namespace}:{}", name(key)));
        Ok(Self { connection, command, namespace, names })
    }

    async fn script(server: &Server, text: &str, arguments: &[&str]) -> io::Result<Self> {
        let sha = server.command(&["SCRIPT", "LOAD", text]).text();
        let sha = sha.ok_or_else(|| io::Error::other("the script was not loaded"))?;
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self::new(server, Command::Script { sha, arguments }).await
    }

    fn ask(&self, request: usize) -> impl Future<Output = io::Result<bool>> {
        self.take(self.names.of(request), request)
    }

    /// Asks for one unit of the key of this number.
    pub(crate) async fn take_of(&self, key: usize, unique: usize) -> io::Result<bool> {
        self.take(&format!("{}:{}", self.namespace, name(key)), unique).await
    }

    /// Asks for one unit of a key; `unique` is unlike that of any other request.
    async fn take(&self, key: &str, unique: usize) -> io::Result<bool> {
        let mut connection = self.connection.clone();
        let command = match &self.command {
            Command::Incr => redis::cmd("INCR").arg(key).to_owned(),
            Command::Script { sha, arguments } => {
                let mut command = redis::cmd("EVALSHA");
                command.arg(sha).arg(1).arg(key).arg(arguments).arg(unique);
                command
            }
        };
        let reply: redis::Value =
            command.query_async(&mut connection).await.map_err(io::Error::other)?;
        Ok(match reply {
            redis::Value::Array(values) => values.first() == Some(&redis::Value::Int(1)),
            redis::Value::Int(granted) => granted > 0,
            _ => false,
        })
    }
}

/// Tollgate's store.
pub(crate) struct Tollgate {
    limiter: Limiter<RedisStore>,
    asks: Asks,
    hot: bool,
    names: Names,
}

/// Which buckets a request charges.
enum Asks {
    /// The key's.
    One(Meter),
    /// All of the key's, one by each meter.
    All([Meter; 3]),
    /// The key's, that of its tenant, and one for everybody.
    Nested([Meter; 3]),
}

enum Remember {
    Yes,
    No,
}

impl Tollgate {
    fn new(server: &Server, algorithm: Algorithm) -> io::Result<Self> {
        let quota = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => "1000/s burst 1000000",
            Algorithm::SlidingLog => "100000/h",
            Algorithm::FixedWindow | Algorithm::SlidingWindow => "1000000/h",
        };
        Self::with(server, Remember::Yes, Asks::One(meter(quota, algorithm)), false)
    }

    fn composite(server: &Server) -> io::Result<Self> {
        let quotas = ["1000/s burst 1000000", "60000/m burst 1000000", "3600000/h burst 1000000"];
        let meters = quotas.map(|quota| meter(quota, Algorithm::TokenBucket));
        Self::with(server, Remember::Yes, Asks::All(meters), false)
    }

    fn nested(server: &Server) -> io::Result<Self> {
        const SHARED: &str = "1000000/s burst 1000000000";
        let quotas = ["1000/s burst 1000000", SHARED, SHARED];
        let meters = quotas.map(|quota| meter(quota, Algorithm::TokenBucket));
        Self::with(server, Remember::Yes, Asks::Nested(meters), false)
    }

    async fn refused(server: &Server, remember: Remember) -> io::Result<Self> {
        let asks = Asks::One(meter("1/h", Algorithm::TokenBucket));
        let tollgate = Self::with(server, remember, asks, true)?;
        // The one unit there is.
        tollgate.ask(0).await?;
        Ok(tollgate)
    }

    fn with(server: &Server, remember: Remember, asks: Asks, hot: bool) -> io::Result<Self> {
        // Contenders do not share buckets, and their names are as long as if they were alone.
        let prefix = match asks {
            _ if hot => "toll-hot",
            Asks::One(_) => "toll-one",
            Asks::All(_) => "toll-all",
            Asks::Nested(_) => "toll-few",
        };
        let builder = RedisStore::builder(&server.url()).map_err(io::Error::other)?;
        let builder = builder.deadline(PATIENCE).prefix(prefix.parse().map_err(io::Error::other)?);
        let builder = match remember {
            Remember::Yes => builder,
            Remember::No => builder.deny_cache(0),
        };
        let store = builder.build().map_err(io::Error::other)?;
        Ok(Self { limiter: Limiter::new(store), asks, hot, names: Names::new(name) })
    }

    fn ask(&self, request: usize) -> impl Future<Output = io::Result<bool>> {
        self.take(self.names.of(if self.hot { 0 } else { request }))
    }

    /// Asks for one unit of the buckets of the key of this number.
    pub(crate) async fn take_of(&self, key: usize) -> io::Result<bool> {
        self.take(&name(key)).await
    }

    /// Asks for one unit of a key's buckets.
    async fn take(&self, key: &str) -> io::Result<bool> {
        let decision = match &self.asks {
            Asks::One(meter) => self.limiter.take(key, meter, Cost::ONE).await,
            Asks::All(meters) => self.limiter.take_set(&units([key; 3], meters)?).await,
            Asks::Nested(meters) => {
                let tenant = key.split_once(":user").map_or(key, |(tenant, _)| tenant);
                self.limiter.take_set(&units([key, tenant, "everybody"], meters)?).await
            }
        };
        decision.map(|decision| decision.is_allowed()).map_err(io::Error::other)
    }
}

/// One unit of the bucket of each key and meter.
fn units<'k>(keys: [&'k str; 3], meters: &[Meter; 3]) -> io::Result<ChargeSet<'k>> {
    let mut set = ChargeSet::new();
    for (key, meter) in keys.into_iter().zip(meters) {
        set.push(Charge::take(key, *meter, Cost::ONE)).map_err(io::Error::other)?;
    }
    Ok(set)
}

fn meter(quota: &str, algorithm: Algorithm) -> Meter {
    let quota = quota.parse().expect("a quota in Tollgate's grammar");
    Meter::new(quota, algorithm).expect("the quota fits the algorithm")
}
