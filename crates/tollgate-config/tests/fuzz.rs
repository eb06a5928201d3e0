//! Whatever is in a file, reading it ends soon, takes little memory, and does not panic.
//!
//! The tests replay `corpus/` and every other file of the tests, and change them at random for a few
//! seconds. To look for longer, by hand and in release:
//!
//! ```sh
//! FUZZ_SECONDS=600 cargo test --release -p tollgate-config --test fuzz -- --nocapture
//! ```
//!
//! What fails is written to `corpus/`: commit it with the fix.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tollgate::{Cost, Costs, Subject};
use tollgate_config::envoy::{Descriptor, Domains, Hits, Options};
use tollgate_config::{Format, Loader, Source};

/// How long one input may take; a thousand times what the worst takes on an idle machine.
const LONGEST: Duration = Duration::from_secs(60);

/// How much one input may take, beyond so many times its own size.
const MOST_BYTES: usize = 400 << 20;
const MOST_TIMES: usize = 400;

/// Inputs that are tried in a test run.
const FEW: usize = 1_500;

/// The longest input that is made by changing others.
const LONGEST_INPUT: usize = 64 << 10;

/// One at a time, for memory is counted over the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// The system's allocator, with the bytes held now and the most there were.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Reads a text in every way there is, and uses what comes of it.
fn read(text: &str) {
    for format in [Format::Toml, Format::Yaml] {
        match Loader::new().load_text(Source::new("fuzz", text), format) {
            Ok(loaded) => {
                let _ = loaded.warnings.to_string();
                let subject = Subject::new().with("ip", "192.0.2.7").with("route", "/api/x");
                let policy = loaded.settings.policy;
                let _ = policy.resolve(&subject, &Costs::default());
                let _ = policy.explain(&subject, &Costs::default());
            }
            Err(report) => {
                assert!(report.counts().0 > 0, "refused without a reason");
                assert!(report.to_string().len() < 200_000, "a report nobody can read");
                assert_eq!(report.findings().count() == 0, report.is_empty());
            }
        }
    }
    if let Ok(loaded) = Domains::read([Source::new("fuzz", text)], Options::default()) {
        let entries = [("key", "value")];
        let request = [Descriptor { entries: &entries, limit: None, hits: Hits::Take(Cost::ONE) }];
        for domain in loaded.domains.names() {
            let _ = loaded.domains.resolve(domain, &request);
        }
        let converted = loaded.domains.to_toml();
        let _ = Loader::new().load_text(Source::new("converted", converted), Format::Toml);
    }
}

/// What is wrong with how a text is read, if anything.
fn try_reading(text: &str) -> Option<String> {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = Instant::now();
    if panic::catch_unwind(AssertUnwindSafe(|| read(text))).is_err() {
        return Some("it panics".to_owned());
    }
    let took = start.elapsed();
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    if took > LONGEST {
        return Some(format!("it takes {took:?}"));
    }
    if peak > MOST_BYTES + MOST_TIMES * text.len() {
        return Some(format!("{} bytes take {peak} bytes of memory", text.len()));
    }
    None
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// Every file of the tests.
fn corpus() -> Vec<(String, String)> {
    let folders = ["corpus", "bad", "good", "envoy_bad"].map(|name| tests().join(name));
    let mut files = Vec::new();
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        files.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    files.sort();
    files
}

#[test]
fn every_known_file_is_read_within_bounds() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let corpus = corpus();
    assert!(corpus.len() > 60, "only {} files", corpus.len());
    for (name, text) in corpus {
        assert_eq!(try_reading(&text), None, "{name}");
    }
}

/// Texts that are large, deep, or many of something.
fn bombs() -> Vec<(&'static str, String)> {
    let lines = |count: usize, line: &dyn Fn(usize) -> String| -> String {
        (0..count).map(line).collect::<Vec<_>>().join("\n")
    };
    let aliases = |width: usize| {
        let mut text = String::from("a0: &a0 [x]\n");
        for level in 1..60 {
            let items = vec![format!("*a{}", level - 1); width].join(", ");
            text += &format!("a{level}: &a{level} [{items}]\n");
        }
        text
    };
    vec![
        ("nested lists", "rule: ".to_owned() + &"[".repeat(100_000)),
        ("nested tables", "a: {".repeat(50_000)),
        ("nested toml lists", "a = ".to_owned() + &"[".repeat(100_000)),
        ("nested toml tables", "a = ".to_owned() + &"{a = ".repeat(50_000)),
        ("dotted keys", "a.".repeat(50_000) + "b = 1"),
        ("dotted header", format!("[{}b]\n", "a.".repeat(50_000))),
        ("nested blocks", lines(2_000, &|depth| " ".repeat(depth) + "a:")),
        ("doubling aliases", aliases(2)),
        ("tenfold aliases", aliases(10)),
        (
            "chained aliases",
            lines(60, &|n| match n {
                0 => "a0: &a0 [[[[[[[[[[x]]]]]]]]]]".to_owned(),
                n => format!("a{n}: &a{n} [[[[[[[[[[*a{}]]]]]]]]]]", n - 1),
            }),
        ),
        ("many rules", lines(6_000, &|n| format!("[[rule]]\nname = 'r{n}'\nquota = '1/s'"))),
        (
            "many routes",
            lines(5_000, &|n| {
                format!("[[rule]]\nname = 'r{n}'\nwhen = {{ route = '/r{n}' }}\nquota = '1/s'")
            }),
        ),
        (
            "many prefixes",
            lines(2_000, &|n| {
                format!("[[rule]]\nname = 'r{n}'\nwhen = {{ route = '/r{n}/*' }}\nquota = '1/s'")
            }),
        ),
        (
            "many axes",
            lines(1_500, &|n| {
                format!(
                    "[[rule]]\nname = 'r{n}'\nwhen = {{ a{n} = 'x' }}\nby = ['a{n}']\nquota = '1/s'"
                )
            }),
        ),
        (
            "two conditions each",
            lines(5_000, &|n| {
                let (one, two) = (n % 70, n / 70);
                format!(
                    "[[rule]]\nname = 'r{n}'\nwhen = {{ route = '/{one}/*', host = 'h{two}*' }}\nquota = '1/s'"
                )
            }),
        ),
        (
            "many overrides",
            "[[rule]]\nname = 'r'\nby = ['ip']\nquota = '1/s'\n".to_owned()
                + &lines(5_000, &|n| {
                    format!("[[override]]\nrule = 'r'\nwhen = {{ ip = '1.{n}.*' }}\nquota = '2/s'")
                }),
        ),
        (
            "many list entries",
            format!(
                "allow.ip = [{}]\ndeny.ip = [{}]",
                "'10.0.0.0/8',".repeat(50_000),
                "'10.0.0.0/8',".repeat(50_000)
            ),
        ),
        ("many unknown fields", lines(20_000, &|n| format!("field{n} = {n}"))),
        ("many unknown yaml fields", lines(20_000, &|n| format!("field{n}: {n}"))),
        ("one field many times", "a: 1\n".repeat(20_000)),
        (
            "many merges",
            "a: &a {b: 1}\n".to_owned() + &lines(4_000, &|n| format!("c{n}: {{<<: [*a, *a, *a]}}")),
        ),
        ("a long line", format!("headers = '{}'", "x".repeat(3_000_000))),
        ("a long name", format!("[[rule]]\nname = '{}'\nquota = '1/s'", "n".repeat(1_000_000))),
        ("too large", "# x\n".repeat(2 << 20)),
        (
            "descriptors",
            "domain: d\ndescriptors:\n".to_owned()
                + &lines(8_000, &|n| {
                    format!(
                        "- {{key: k, value: v{n}, rate_limit: {{unit: day, requests_per_unit: {n}}}}}"
                    )
                }),
        ),
        (
            "wildcards",
            "domain: d\ndescriptors:\n".to_owned()
                + &lines(800, &|n| {
                    format!(
                        "- {{key: k, value: 'v{n}*', rate_limit: {{unit: day, requests_per_unit: {n}}}}}"
                    )
                }),
        ),
        ("documents", "domain: d\n---\n".repeat(8_000)),
        ("nothing but nulls", "\0".repeat(100_000)),
        ("byte order marks", "\u{feff}".repeat(10_000)),
        ("colons", ": ".repeat(100_000)),
        ("dashes", "- ".repeat(100_000)),
        ("question marks", "? ".repeat(100_000)),
        ("quotes", "'".repeat(100_000)),
        ("tags", "!a ".repeat(100_000)),
        ("anchors", "&a ".repeat(100_000)),
        ("percent", "%YAML 1.2\n".repeat(10_000)),
    ]
}

#[test]
fn large_and_deep_files_are_read_within_bounds() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (name, text) in bombs() {
        let start = Instant::now();
        assert_eq!(try_reading(&text), None, "{name}");
        println!("{name}: {} bytes, {:?}", text.len(), start.elapsed());
    }
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}

/// Words that mean something to one of the readers.
const WORDS: [&str; 48] = [
    "\n",
    "\t",
    "  ",
    "- ",
    ": ",
    " = ",
    "[[rule]]\n",
    "[store]\n",
    "[[override]]\n",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "\"\"\"",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "|\n",
    ">\n",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "? ",
    "name",
    "quota",
    "when",
    "by",
    "tier",
    "100/min",
    "1/s burst 9",
    "18446744073709551616",
    "-1",
    "1e400",
    "0x",
    "nan",
    "true",
    "null",
    "~",
    "\u{feff}",
    "\u{0}",
    "é",
    "domain: d\n",
    "descriptors:\n",
    "rate_limit: {unit: day}\n",
];

fn change(text: &str, corpus: &[(String, String)], numbers: &mut Numbers) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=numbers.below(6) {
        let at = numbers.below(bytes.len() + 1);
        let end = at + numbers.below((bytes.len() - at).min(64) + 1);
        match numbers.below(7) {
            0 => bytes.insert(at, numbers.below(256) as u8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let word = WORDS[numbers.below(WORDS.len())];
                bytes.splice(at..at, word.bytes());
            }
            3 => {
                let piece = bytes[at..end].repeat(1 + numbers.below(40));
                bytes.splice(at..at, piece);
            }
            4 => {
                let other = corpus[numbers.below(corpus.len())].1.as_bytes();
                let from = numbers.below(other.len() + 1);
                let to = from + numbers.below((other.len() - from).min(400) + 1);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            5 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            _ => bytes.truncate(at),
        }
        bytes.truncate(LONGEST_INPUT);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn changed_files_are_read_within_bounds() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let corpus = corpus();
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    // By hand other inputs every time, in a test always the same.
    let seed = until.map_or(1, |_| std::process::id().into());
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ seed);
    let mut tried = 0;
    while until.map_or(tried < FEW, |until| Instant::now() < until) {
        let text = &corpus[numbers.below(corpus.len())].1;
        let text = change(text, &corpus, &mut numbers);
        if let Some(wrong) = try_reading(&text) {
            let path = tests().join("corpus").join(format!("found-{tried}"));
            fs::write(&path, &text).unwrap();
            panic!("{wrong}: {}", path.display());
        }
        tried += 1;
    }
    println!("{tried} inputs");
}
