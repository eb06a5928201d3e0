//! Four processes of 64 tasks each on the same few keys: together they are granted exactly what the
//! definition allows, a refused set charges nobody, and a process that is killed at any moment
//! leaves no key that would stay for ever.
//!
//! This program is both: started by hand it runs the tests, and it starts itself as the workers.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use tollgate::{Algorithm, Charge, ChargeSet, Cost, Limiter, Meter};
use tollgate_redis::RedisStore;
use tollgate_testkit::redis::{Server, wait_for};

const PROCESSES: usize = 4;
const TASKS: usize = 64;

/// What a worker is told, in its environment: what to do, and where.
const WORK: &str = "TOLLGATE_TEST_WORK";
const URL: &str = "TOLLGATE_TEST_URL";

/// Long enough that nothing is late on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);

/// Ten years: while a test runs nothing refills and no window ends.
const PERIOD: &str = "3653d";

/// Units of every key that is asked for alone.
const LIMIT: u64 = 2_000;

/// Keys that are asked for alone.
const KEYS: usize = 3;

/// Units of the scarcer bucket of a set, and of the other.
const SCARCE: u64 = 500;
const AMPLE: u64 = 2_000;

fn main() {
    if let (Ok(work), Ok(url)) = (std::env::var(WORK), std::env::var(URL)) {
        return worker(&work, &url);
    }
    for algorithm in Algorithm::ALL {
        test(&format!("{algorithm}_grants_exactly_its_limit"), || exact(algorithm));
        test(&format!("sets_of_{algorithm}_never_charge_a_part"), || whole(algorithm));
    }
    test("killed_workers_leave_no_key_for_ever", killed);
}

fn test(name: &str, run: impl FnOnce()) {
    // A panic ends the program, and with it the servers and workers.
    run();
    println!("test {name} ... ok");
}

fn exact(algorithm: Algorithm) {
    let server = Server::start();
    let granted = Workers::start(&server, &format!("alone {algorithm}")).granted();
    assert_eq!(granted, [LIMIT * KEYS as u64, 0], "{algorithm}");
    assert!(server.keys_without_expiry().is_empty());
}

fn whole(algorithm: Algorithm) {
    let server = Server::start();
    let [alone, both] = Workers::start(&server, &format!("sets {algorithm}")).granted();
    let left = run(async {
        let limiter = Limiter::new(store(&server.url()));
        let mut left = Vec::new();
        for (key, limit) in [("scarce", SCARCE), ("ample", AMPLE)] {
            let peek = limiter.peek(key, meter(limit, algorithm), Cost::ONE).await.unwrap();
            left.push(peek.outcomes()[0].reading.unwrap().remaining);
        }
        left
    });
    assert_eq!(left[0], SCARCE - both, "{algorithm}");
    assert_eq!(left[1], AMPLE - both - alone, "{algorithm}");
    // Everybody asked until refused, so nothing is left that anybody wanted.
    assert_eq!(left[1], 0, "{algorithm}");
}

fn killed() {
    let server = Server::start();
    for _ in 0..3 {
        let workers = Workers::start(&server, "endless token-bucket");
        let before = server.keys().len();
        wait_for("keys", || (server.keys().len() > before + 500).then_some(()));
        // Dropped, and so killed, in the middle of whatever they were doing.
        drop(workers);
    }
    assert!(server.keys().len() > 1_500);
    assert_eq!(server.keys_without_expiry(), Vec::<String>::new());
}

/// Processes that end with their owner, or with this program.
struct Workers(Vec<(Child, BufReader<ChildStdout>)>);

impl Workers {
    fn start(server: &Server, work: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let start = |_| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]).arg(&program).stdout(Stdio::piped());
            let mut child = command.env(WORK, work).env(URL, server.url()).spawn().unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            (child, output)
        };
        Self((0..PROCESSES).map(start).collect())
    }

    /// What all of them were granted: alone, and as sets.
    fn granted(mut self) -> [u64; 2] {
        let mut granted = [0, 0];
        for (child, output) in &mut self.0 {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert!(child.wait().unwrap().success(), "a worker failed: {line}");
            for (sum, number) in granted.iter_mut().zip(line.split_whitespace()) {
                *sum += number.parse::<u64>().unwrap();
            }
        }
        granted
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A process that asks until all it wants is refused, and says what it was granted.
fn worker(work: &str, url: &str) {
    let (kind, algorithm) = work.split_once(' ').unwrap();
    let algorithm = Algorithm::from_str(algorithm).unwrap();
    let granted = run(async {
        let store = store(url);
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let store = store.clone();
                match kind {
                    "alone" => tokio::spawn(alone(store, task, algorithm)),
                    "sets" => tokio::spawn(sets(store, task, algorithm)),
                    _ => tokio::spawn(endless(store, task, algorithm)),
                }
            })
            .collect();
        let mut granted = [0, 0];
        for task in tasks {
            let [alone, both] = task.await.unwrap();
            granted = [granted[0] + alone, granted[1] + both];
        }
        granted
    });
    println!("{} {}", granted[0], granted[1]);
}

async fn alone(store: RedisStore, task: usize, algorithm: Algorithm) -> [u64; 2] {
    let limiter = Limiter::new(store);
    let meter = meter(LIMIT, algorithm);
    let key = format!("key:{}", task % KEYS);
    let mut granted = 0;
    while limiter.take(key.as_str(), meter, Cost::ONE).await.unwrap().is_allowed() {
        granted += 1;
    }
    [granted, 0]
}

/// Half of the tasks want both buckets at once, the others only the ample one.
async fn sets(store: RedisStore, task: usize, algorithm: Algorithm) -> [u64; 2] {
    let limiter = Limiter::new(store);
    let mut set = ChargeSet::of(Charge::take("ample", meter(AMPLE, algorithm), Cost::ONE));
    if task.is_multiple_of(2) {
        set.push(Charge::take("scarce", meter(SCARCE, algorithm), Cost::ONE)).unwrap();
    }
    let mut granted = 0;
    while limiter.take_set(&set).await.unwrap().is_allowed() {
        granted += 1;
    }
    if set.len() == 1 { [granted, 0] } else { [0, granted] }
}

/// New keys without end, charged alone and in sets.
async fn endless(store: RedisStore, task: usize, algorithm: Algorithm) -> [u64; 2] {
    let limiter = Limiter::new(store);
    let process = std::process::id();
    for round in 0.. {
        let mut set = ChargeSet::new();
        for bucket in 0..=round % 3 {
            let key = format!("{process}:{task}:{round}:{bucket}");
            set.push(Charge::take(key, meter(LIMIT, algorithm), Cost::ONE)).unwrap();
        }
        limiter.take_set(&set).await.unwrap();
    }
    [0, 0]
}

fn store(url: &str) -> RedisStore {
    // Without a deny cache every task asks Redis until the very end.
    let builder = RedisStore::builder(url).unwrap().deadline(PATIENT).deny_cache(0);
    builder.build().unwrap()
}

fn meter(limit: u64, algorithm: Algorithm) -> Meter {
    Meter::new(format!("{limit}/{PERIOD}").parse().unwrap(), algorithm).unwrap()
}

fn run<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(future)
}
