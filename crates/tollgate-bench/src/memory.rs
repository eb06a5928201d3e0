//! Limiters in this process: how long a decision takes, and how much memory a key.
//!
//! ```text
//! workload ── build and fill one store per contender
//!     └ threads ── warm up
//!           └ run 1…n ── each contender in turn   (so that noise meets all alike)
//! ```

use std::io::{self, Write};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::Plan;
use crate::alloc;
use crate::contender::{Contender, Kind};
use crate::report::{self, Format, MemoryRow, TimeRow, Times};
use crate::workload::{Access, Mood, Part, Sequence, Spread, Workload};

/// Threads that decide at once.
const THREADS: [usize; 2] = [1, 2];

/// Decisions per run on one key and on many: enough to keep every limiter busy for 50 ms.
const HOT_DECISIONS: usize = 4_000_000;
const MANY_DECISIONS: usize = 2_000_000;

/// How many times fewer decisions a quick look makes.
const QUICK: usize = 8;

/// The part of a sequence that warms up, one in so many.
const WARM_UP: usize = 8;

/// Requests that are parsed, as it were, before their turn to be decided comes: so few that their keys
/// stay in the nearest cache.
const PARSED: usize = 256;

/// Keys at which memory is weighed.
const WEIGHED_KEYS: [usize; 2] = [1_000_000, 5_000_000];

impl Plan {
    /// Decisions per run.
    fn decisions(&self, spread: Spread) -> usize {
        let decisions = match spread {
            Spread::Hot => HOT_DECISIONS,
            Spread::Uniform | Spread::Zipf => MANY_DECISIONS,
        };
        decisions / if self.quick { QUICK } else { 1 }
    }

    /// Whether any row of `workload` is wanted.
    fn includes(&self, workload: Workload) -> bool {
        let chosen = THREADS.map(|threads| self.chosen_to_time(workload, threads));
        chosen.iter().any(|kinds| !kinds.is_empty())
    }

    /// The kinds to time on `workload` with so many threads.
    fn chosen_to_time(&self, workload: Workload, threads: usize) -> Vec<Kind> {
        self.chosen(Kind::on(workload), |kind| {
            let (name, algorithm) = (kind.name(), kind.algorithm());
            format!("decisions {workload} {threads}T {name} {algorithm}")
        })
    }

    /// The kinds to run: those that `text` makes match, and governor to compare them with.
    fn chosen(&self, kinds: Vec<Kind>, text: impl Fn(Kind) -> String) -> Vec<Kind> {
        let wanted = |kind: Kind| text(kind).contains(&self.filter);
        if !kinds.iter().any(|kind| wanted(*kind)) {
            return Vec::new();
        }
        let chosen = kinds.into_iter();
        let chosen = chosen.filter(|kind| wanted(*kind) || *kind == Kind::Governor);
        chosen.collect()
    }
}

/// Measures everything in `plan` and prints it to `out`.
pub(crate) fn run(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    header(plan, out)?;
    for spread in [Spread::Hot, Spread::Uniform, Spread::Zipf] {
        let workloads = Workload::ALL.into_iter();
        let workloads = workloads.filter(|one| one.spread == spread && plan.includes(*one));
        let workloads: Vec<Workload> = workloads.collect();
        if workloads.is_empty() {
            continue;
        }
        let decisions = plan.decisions(spread);
        eprintln!("preparing {decisions} requests ({spread:?})");
        let sequence = Sequence::new(spread, decisions);
        for workload in workloads {
            time_workload(plan, workload, &sequence, out)?;
        }
    }
    for keys in WEIGHED_KEYS {
        if !plan.quick || keys == WEIGHED_KEYS[0] {
            weigh(plan, keys, out)?;
        }
    }
    Ok(())
}

/// Says what is measured where.
fn header(plan: &Plan, out: &mut impl Write) -> io::Result<()> {
    let cores = thread::available_parallelism()?;
    let command: Vec<String> = std::env::args().skip(1).collect();
    let text = format!(
        "machine   {}, {cores} core(s), load {} before\n\
         command   cargo run --release -p tollgate-bench -- {}\n\
         work      {} decisions per run on the hot key, {} on a million; \
         {} interleaved runs, median\n\
         quotas    mostly-allow 1/ms burst 1000000000, mostly-deny 1/h; windows 90000000/h, \
         sliding log 100000/ms (hot) or 1000/5s\n\
         ns        time from key to verdict: of the slowest thread, divided by the decisions of all\n\
         granted   by the filling and all runs together; equal where the work was equal",
        cpu_model(),
        load(),
        command.join(" "),
        plan.decisions(Spread::Hot),
        plan.decisions(Spread::Uniform),
        plan.runs,
    );
    match plan.format {
        Format::Table => writeln!(out, "{text}"),
        Format::Json => writeln!(io::stderr(), "{text}"),
    }
}

pub(crate) fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned())
}

/// How many processes wanted to run in the last minute: above zero before a start, others do.
pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}

/// A contender whose keys are there.
struct Filled {
    kind: Kind,
    contender: Box<dyn Contender>,
    // Keys whose filling was granted.
    granted: u64,
}

impl Filled {
    fn new(kind: Kind, workload: Workload, keys: &[Access]) -> Self {
        let contender = kind.build(workload);
        let granted = keys.iter().map(|access| u64::from(contender.fill(access)));
        let granted = granted.sum();
        Self { kind, contender, granted }
    }
}

fn time_workload(
    plan: &Plan,
    workload: Workload,
    sequence: &Sequence,
    out: &mut impl Write,
) -> io::Result<()> {
    let chosen = THREADS.map(|threads| plan.chosen_to_time(workload, threads));
    let any = |kind: &Kind| chosen.iter().any(|kinds| kinds.contains(kind));
    let kinds = Kind::on(workload).into_iter().filter(any);
    let filled: Vec<Filled> = kinds
        .inspect(|kind| eprintln!("{workload}: filling {}", kind.name()))
        .map(|kind| Filled::new(kind, workload, sequence.keys()))
        .collect();
    for (threads, kinds) in THREADS.into_iter().zip(&chosen) {
        let entrants = filled.iter().filter(|one| kinds.contains(&one.kind));
        let entrants: Vec<&Filled> = entrants.collect();
        if entrants.is_empty() {
            continue;
        }
        let rows = time_threads(plan, workload, threads, sequence, &entrants);
        report::times(out, plan.format, &rows)?;
        warn_of_unequal_work(&rows);
    }
    Ok(())
}

/// Runs all entrants in turn, as often as planned.
fn time_threads(
    plan: &Plan,
    workload: Workload,
    threads: usize,
    sequence: &Sequence,
    entrants: &[&Filled],
) -> Vec<TimeRow> {
    let mut nanos = vec![Vec::with_capacity(plan.runs); entrants.len()];
    let mut granted: Vec<u64> = entrants.iter().map(|entrant| entrant.granted).collect();
    for entrant in entrants {
        entrant.contender.run(sequence.part(0, WARM_UP));
    }
    for run in 1..=plan.runs {
        eprintln!("{workload}, {threads} thread(s): run {run} of {}", plan.runs);
        for (index, entrant) in entrants.iter().enumerate() {
            let measured = measure(entrant.contender.as_ref(), sequence, threads);
            nanos[index].push(measured.nanos / sequence.decisions() as f64);
            granted[index] += measured.granted;
        }
    }
    let fillings = workload.spread.keys();
    let decisions = (fillings + plan.runs * sequence.decisions()) as u64;
    let times: Vec<Times> = nanos.into_iter().map(Times::of).collect();
    let governor = entrants.iter().position(|one| one.kind == Kind::Governor);
    let governor = governor.map(|index| times[index].median_ns);
    let results = entrants.iter().zip(times).zip(granted);
    let row = |((entrant, times), granted): ((&&Filled, Times), u64)| TimeRow {
        section: "decisions",
        workload: workload.to_string(),
        threads,
        contender: entrant.kind.name(),
        algorithm: entrant.kind.algorithm(),
        times,
        decisions,
        granted,
        ratio_to_governor: governor.map(|governor| report::hundredth(governor / times.median_ns)),
    };
    results.map(row).collect()
}

fn warn_of_unequal_work(rows: &[TimeRow]) {
    for row in rows {
        let first = &rows[0];
        if row.granted != first.granted {
            eprintln!(
                "warning: unequal work on {}, {} thread(s): {} {} granted {}, {} granted {}",
                row.workload,
                row.threads,
                row.contender,
                row.algorithm,
                row.granted,
                first.contender,
                first.granted,
            );
        }
    }
}

/// One run of one contender.
struct Measured {
    // Of the thread that took longest.
    nanos: f64,
    granted: u64,
}

/// Runs `sequence`, shared out to threads that start together, each on a core of its own.
fn measure(contender: &dyn Contender, sequence: &Sequence, threads: usize) -> Measured {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let barrier = Barrier::new(threads);
    let work = |thread: usize, part: Part<'_>| {
        if let Some(core) = cores.get(thread) {
            core_affinity::set_for_current(*core);
        }
        barrier.wait();
        run_parsed(contender, part)
    };
    let spans: Vec<(Duration, u64)> = thread::scope(|scope| {
        let spawn = |thread| {
            scope.spawn({
                let work = &work;
                move || work(thread, sequence.part(thread, threads))
            })
        };
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.map(|span| span.expect("no contender panics")).collect()
    });
    let longest = spans.iter().map(|span| span.0).max().expect("there is a thread");
    Measured { nanos: longest.as_nanos() as f64, granted: spans.iter().map(|span| span.1).sum() }
}

/// Makes every request of `part`, and says how long the decisions took and what was granted.
///
/// A limiter sees a key that has just been parsed. So keys are copied to where the nearest cache has them
/// first, a few hundred at a time, and that is not part of the time; those that are gone over again and
/// again are there anyway.
fn run_parsed(contender: &dyn Contender, part: Part<'_>) -> (Duration, u64) {
    let run = |part: Part<'_>| {
        let start = Instant::now();
        let granted = contender.run(part);
        (start.elapsed(), granted)
    };
    if part.rounds > 1 {
        return run(part);
    }
    let mut parsed: Vec<Access> = (0..PARSED).map(|_| Access::of(0)).collect();
    let (mut took, mut granted) = (Duration::ZERO, 0);
    for few in part.accesses.chunks(PARSED) {
        for (place, access) in parsed.iter_mut().zip(few) {
            place.index = access.index;
            place.key.clone_from(&access.key);
        }
        let (few_took, few_granted) = run(Part { accesses: &parsed[..few.len()], rounds: 1 });
        took += few_took;
        granted += few_granted;
    }
    (took, granted)
}

/// Weighs all contenders at so many keys.
fn weigh(plan: &Plan, keys: usize, out: &mut impl Write) -> io::Result<()> {
    let text = |kind: Kind| format!("memory {keys} {} {}", kind.name(), kind.algorithm());
    let workload = Workload { spread: Spread::Uniform, mood: Mood::Allow };
    let mut rows = Vec::new();
    for kind in plan.chosen(Kind::WEIGHED.to_vec(), text) {
        eprintln!("memory: filling {} with {keys} keys", kind.name());
        let ((_contender, granted), held) = alloc::held_by(|| {
            let contender = kind.build(workload);
            let accesses = (0..keys).map(Access::of);
            let granted: u64 = accesses.map(|one| u64::from(contender.fill(&one))).sum();
            (contender, granted)
        });
        rows.push(MemoryRow {
            section: "memory",
            keys,
            contender: kind.name(),
            algorithm: kind.algorithm(),
            bytes_per_key: report::tenth(held as f64 / keys as f64),
            granted,
            ratio_to_governor: None,
        });
    }
    let governor = rows.iter().find(|row| row.contender == Kind::Governor.name());
    let governor = governor.map(|row| row.bytes_per_key);
    for row in &mut rows {
        row.ratio_to_governor =
            governor.map(|governor| report::hundredth(governor / row.bytes_per_key));
    }
    report::memory(out, plan.format, &rows)
}
