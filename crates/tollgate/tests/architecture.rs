//! The invariants of ARCHITECTURE.md that can be read off the sources.
//!
//! Everything is matched as whole words, in code only: comments, and what stands in strings, may
//! speak of whatever they like. Where a test here fails, either the change is wrong or the invariant
//! is given up, and then ARCHITECTURE.md has to say so.

use std::fs;
use std::path::{Path, PathBuf};

/// Everything that would make the library more than arithmetic and memory: files, sockets,
/// processes, the environment, printing.
const OUTSIDE_WORLD: [&str; 17] = [
    "fs",
    "File",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixListener",
    "UnixStream",
    "env",
    "option_env",
    "process",
    "Command",
    "stdin",
    "stdout",
    "stderr",
    "println",
    "eprintln",
    "print",
];

#[test]
fn the_library_does_no_io_spawns_nothing_and_reads_no_environment() {
    let files = sources("tollgate/src");
    forbid(&files, &OUTSIDE_WORLD);
    let files = files.into_iter();
    let files: Vec<_> =
        files.filter(|file| !TESTS.iter().any(|tests| file.is_under(tests))).collect();
    forbid(&files, &["spawn"]);
}

/// Files of the library that are tests, and may have threads: no other build has them.
const TESTS: [&str; 2] = ["tollgate/src/memory/models", "tollgate/src/clock/system/tests"];

#[test]
fn only_tests_are_built_with_what_only_tests_may_do() {
    let builds = |file: &str, text: &str| {
        assert!(read(&crates().join(file)).contains(text), "{file} lacks {text:?}");
    };
    builds("tollgate/src/memory.rs", "#[cfg(all(test, loom))]\nmod models;");
    builds("tollgate/src/clock/system.rs", "#[cfg(test)]\nmod tests;");
}

#[test]
fn the_library_has_few_dependencies_and_no_heavy_one() {
    let manifest = read(&crates().join("tollgate/Cargo.toml"));
    let dependencies = dependencies(&manifest);
    assert!(!dependencies.is_empty(), "no dependencies found: is the manifest read right?");
    assert!(dependencies.len() <= 3, "more than three dependencies: {dependencies:?}");
    for heavy in ["tokio", "serde", "serde_json", "redis", "http", "tracing", "log"] {
        assert!(!dependencies.iter().any(|name| name == heavy), "the library depends on {heavy}");
    }
}

#[test]
fn only_a_clock_asks_for_the_time() {
    let files = sources("tollgate/src").into_iter();
    let files: Vec<_> = files.filter(|file| !file.is_under("tollgate/src/clock")).collect();
    forbid(&files, &["SystemTime", "Instant", "UNIX_EPOCH"]);
}

#[test]
fn nothing_that_decides_is_a_float() {
    let files = sources("tollgate/src").into_iter();
    let deciding = ["algorithm", "meter", "quota", "charge", "decision", "memory", "time"];
    let deciding = deciding.map(|noun| format!("tollgate/src/{noun}"));
    let files: Vec<_> =
        files.filter(|file| deciding.iter().any(|noun| file.is_under(noun))).collect();
    assert!(files.len() > 10, "the files that decide were not found");
    forbid(&files, &["f32", "f64", "powi", "powf", "sqrt"]);
}

#[test]
fn no_type_of_the_library_goes_over_a_wire_as_it_is() {
    forbid(&sources("tollgate/src"), &["Serialize", "Deserialize", "serde"]);
}

#[test]
fn keys_are_spelled_in_one_file() {
    for file in sources("tollgate/src") {
        if file.is_under("tollgate/src/key") {
            continue;
        }
        assert!(!file.code.contains("'%'"), "{} escapes something; key.rs does that", file.name);
    }
    // A key's fields are private, so whoever wants a rule's key has to ask for it by these names.
    let askers = [
        "tollgate/src/key",
        "tollgate/src/policy/compile",
        "tollgate/src/policy/compiled",
        "tollgate-config/src/envoy/resolve",
    ];
    let others = sources_of_all_crates().into_iter();
    let others: Vec<_> =
        others.filter(|file| !askers.iter().any(|asker| file.is_under(asker))).collect();
    forbid(&others, &["of_rule", "of_rule_near", "Stem"]);
}

#[test]
fn front_ends_leave_the_arithmetic_to_the_library() {
    for front_end in ["tollgate-tower/src", "tollgate-server/src", "tollgate-cli/src"] {
        for file in sources(front_end) {
            for inner in ["tollgate::algorithm::", "State::fresh", ".evaluate(", "Debt"] {
                assert!(!file.code.contains(inner), "{} reaches for {inner}", file.name);
            }
        }
    }
}

#[test]
fn nothing_is_left_to_be_done() {
    forbid(&sources_of_all_crates(), &["todo", "unimplemented", "dbg"]);
}

#[test]
fn comments_and_strings_are_told_from_code() {
    let text = r##"let a = "fs \" // fs"; // fs
        /* fs /* fs */ fs */ let b = ('"', '\'', b'"', r#"fs " fs"#); fn c<'fs>() {} /// fs"##;
    let code = code_of(text);
    // What is left is the lifetime.
    assert_eq!(words(&code).filter(|word| *word == "fs").count(), 1, "{code}");
    assert!(["a", "b", "c"].iter().all(|name| words(&code).any(|word| word == *name)), "{code}");
}

/// A source without its comments and the contents of its strings.
struct Source {
    // From the directory of the crates on, with `/` on every system.
    name: String,
    code: String,
}

impl Source {
    /// Whether it is the file `noun.rs` or lies in the folder `noun`.
    fn is_under(&self, noun: &str) -> bool {
        let rest = self.name.strip_prefix(noun);
        rest.is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    }
}

fn forbid(files: &[Source], forbidden: &[&str]) {
    assert!(!files.is_empty(), "no sources found");
    for file in files {
        for (number, line) in file.code.lines().enumerate() {
            let found = words(line).find(|word| forbidden.contains(word));
            assert!(found.is_none(), "{}:{}: {}", file.name, number + 1, line.trim());
        }
    }
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn crates() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the crate lies in a folder of crates").to_owned()
}

/// The Rust files under a folder of the folder of crates.
fn sources(folder: &str) -> Vec<Source> {
    let mut folders = vec![crates().join(folder)];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(crates()).unwrap().to_str().unwrap();
                sources.push(Source { name: name.replace('\\', "/"), code: code_of(&read(&path)) });
            }
        }
    }
    sources
}

fn sources_of_all_crates() -> Vec<Source> {
    let crates = fs::read_dir(crates()).unwrap().map(|entry| entry.unwrap().path());
    let sources_of = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        path.join("src").is_dir().then(|| sources(&format!("{name}/src")))
    };
    crates.filter_map(sources_of).flatten().collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What every build depends on, by the names in the manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.trim_start().starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.split('.').next().unwrap_or(name).trim().to_owned())
        .collect()
}

/// `text` with comments and the contents of strings left out, line by line as it was.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (kept, length) = match first {
            '/' if rest.starts_with("//") => ("", rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => ("", block_comment(rest)),
            '"' => ("\"\"", string(rest)),
            'r' if !ends_in_a_word(&code) && raw_string(rest).is_some() => {
                ("\"\"", raw_string(rest).unwrap_or(1))
            }
            '\'' => {
                let length = character(rest);
                (&rest[..length], length)
            }
            other => (&rest[..other.len_utf8()], other.len_utf8()),
        };
        code.push_str(kept);
        if kept.len() < length {
            code.extend(rest[..length].chars().filter(|c| *c == '\n'));
        }
        rest = &rest[length..];
    }
    code
}

fn ends_in_a_word(code: &str) -> bool {
    code.ends_with(|c: char| c.is_alphanumeric() || c == '_') && !code.ends_with('b')
}

/// The length of the block comment `text` starts with; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of the string literal `text` starts with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// The length of the raw string literal `text` starts with, if it does.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    let inside = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&end)?;
    Some(1 + hashes + 1 + length + end.len())
}

/// The length of the character literal `text` starts with; one for a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let after = at + escaped.len_utf8();
            text[after..].find('\'').map_or(1, |end| after + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}
