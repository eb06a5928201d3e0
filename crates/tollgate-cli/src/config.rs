//! Looks at files of settings, and says what they mean.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};
use tollgate::{Algorithm, Cost};
use tollgate_config::envoy::{Domains, Options};
use tollgate_config::{Loader, Report};

use crate::exit::{Exit, Failure};
use crate::plan::Print;
use crate::store;

mod explain;

/// What to do with files of settings.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say everything that is wrong with files; exits with 1 if anything is
    Check {
        /// The files, TOML or YAML; with --envoy also directories
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// They are files of envoyproxy/ratelimit
        #[arg(long)]
        envoy: bool,
        /// Meter the limits of such files otherwise than by fixed windows
        #[arg(long, value_name = "ALGORITHM", requires = "envoy")]
        algorithm: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say which rules a request meets, with which keys and quotas, and why it does not meet the others
    Explain {
        /// The file
        file: PathBuf,
        /// What is known of the request; with --envoy the domain first, then a descriptor's entries
        #[arg(value_name = "AXIS=VALUE")]
        pairs: Vec<String>,
        /// What the request costs, one request unless told otherwise
        #[arg(long, value_name = "UNIT=N")]
        cost: Vec<String>,
        /// It is a file of envoyproxy/ratelimit
        #[arg(long, conflicts_with = "cost")]
        envoy: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a file of envoyproxy/ratelimit as one of ours, in TOML
    Convert {
        /// The file, or a directory of them
        file: PathBuf,
        /// Meter its limits otherwise than by fixed windows
        #[arg(long, value_name = "ALGORITHM")]
        algorithm: Option<String>,
    },
    /// Print the JSON Schema of files of settings
    Schema,
}

/// The same as meant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Check { files: Vec<PathBuf>, format: Format, print: Print },
    Explain { file: PathBuf, question: Question, print: Print },
    Convert { file: PathBuf, options: Options },
    Schema,
}

/// Whose files they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Own,
    Envoy(Options),
}

/// What is asked of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// A subject and its costs.
    Subject { pairs: Vec<(String, String)>, costs: Vec<(String, Cost)> },
    /// A domain and the entries of a descriptor.
    Descriptor { domain: String, entries: Vec<(String, String)> },
}

impl Plan {
    /// What a command means.
    pub(crate) fn new(command: Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::Check { files, envoy, algorithm, json } => {
                let options = options(algorithm)?;
                let format = if envoy { Format::Envoy(options) } else { Format::Own };
                Self::Check { files, format, print: json.into() }
            }
            Command::Explain { file, pairs, cost, envoy, json } => {
                let question = match envoy {
                    true => Question::of_descriptor(pairs)?,
                    false => Question::of_subject(pairs, cost)?,
                };
                Self::Explain { file, question, print: json.into() }
            }
            Command::Convert { file, algorithm } => {
                Self::Convert { file, options: options(algorithm)? }
            }
            Command::Schema => Self::Schema,
        })
    }
}

fn options(algorithm: Option<String>) -> Result<Options, Failure> {
    let Some(name) = algorithm else { return Ok(Options::default()) };
    let algorithm: Algorithm = name.parse().map_err(Failure::new)?;
    Ok(Options::default().algorithm(algorithm))
}

impl Question {
    fn of_subject(pairs: Vec<String>, costs: Vec<String>) -> Result<Self, Failure> {
        let costs = costs.into_iter().map(|text| {
            let (unit, count) = pair(&text, "UNIT=N")?;
            let cost = count.parse().ok().and_then(Cost::new);
            let wrong = format!("--cost {text:?} has no whole number from 1; write UNIT=N");
            Ok((unit, cost.ok_or_else(|| Failure::new(wrong))?))
        });
        Ok(Self::Subject { pairs: all_pairs(pairs)?, costs: costs.collect::<Result<_, _>>()? })
    }

    fn of_descriptor(pairs: Vec<String>) -> Result<Self, Failure> {
        let mut entries = all_pairs(pairs)?;
        match entries.first() {
            Some((key, _)) if key == "domain" => {
                let (_, domain) = entries.remove(0);
                Ok(Self::Descriptor { domain, entries })
            }
            _ => Err(Failure::new("write the domain first: domain=NAME KEY=VALUE…")),
        }
    }
}

fn all_pairs(texts: Vec<String>) -> Result<Vec<(String, String)>, Failure> {
    texts.iter().map(|text| pair(text, "AXIS=VALUE")).collect()
}

fn pair(text: &str, form: &str) -> Result<(String, String), Failure> {
    let apart = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let apart = apart.map(|(name, value)| (name.to_owned(), value.to_owned()));
    apart.ok_or_else(|| Failure::new(format_args!("{text:?} is no pair; write {form}")))
}

/// Does as planned.
pub(crate) fn run(plan: Plan) -> Result<Exit, Failure> {
    match plan {
        Plan::Check { files, format, print } => check(&files, format, print),
        Plan::Explain { file, question, print } => explain::run(&file, &question, print),
        Plan::Convert { file, options } => convert(&file, options),
        Plan::Schema => {
            let schema = format!("{:#}\n", tollgate_config::schema());
            say(&schema)?;
            Ok(Exit::Fine)
        }
    }
}

/// What was found in one file.
struct Checked<'f> {
    file: &'f Path,
    /// What it holds, if it is right.
    holds: Option<String>,
    report: Report,
}

fn check(files: &[PathBuf], format: Format, print: Print) -> Result<Exit, Failure> {
    let mut checked = Vec::with_capacity(files.len());
    for file in files {
        readable(file)?;
        checked.push(match format {
            Format::Own => check_own(file),
            Format::Envoy(options) => check_envoy(file, options),
        });
    }
    let fine = checked.iter().all(|checked| checked.holds.is_some());
    match print {
        Print::Text => checked.iter().try_for_each(tell)?,
        Print::Json => {
            let files: Vec<Value> = checked.iter().map(as_json).collect();
            say(&format!("{}\n", json!({ "ok": fine, "files": files })))?;
        }
    }
    Ok(if fine { Exit::Fine } else { Exit::Wanting })
}

fn check_own(file: &Path) -> Checked<'_> {
    match Loader::new().store_urls(store::check_with_files).file(file).load() {
        Ok(loaded) => {
            let holds = counted(loaded.settings.policy.rules().len(), "rule");
            Checked { file, holds: Some(holds), report: loaded.warnings }
        }
        Err(report) => Checked { file, holds: None, report },
    }
}

fn check_envoy(file: &Path, options: Options) -> Checked<'_> {
    match Domains::load(file, options) {
        Ok(loaded) => {
            let domains = counted(loaded.domains.names().len(), "domain");
            let holds = format!("{domains}, {}", counted(loaded.domains.limits().len(), "limit"));
            Checked { file, holds: Some(holds), report: loaded.warnings }
        }
        Err(report) => Checked { file, holds: None, report },
    }
}

fn tell(checked: &Checked<'_>) -> Result<(), Failure> {
    let (errors, warnings) = checked.report.counts();
    if !checked.report.is_empty() {
        eprintln!("{}", checked.report);
    }
    let mut said = match &checked.holds {
        Some(holds) => format!("{}: fine, {holds}", checked.file.display()),
        None => format!("{}: {}", checked.file.display(), counted(errors, "error")),
    };
    if warnings > 0 {
        said = format!("{said}, {}", counted(warnings, "warning"));
    }
    say(&format!("{said}\n"))
}

fn as_json(checked: &Checked<'_>) -> Value {
    let (errors, warnings) = checked.report.counts();
    let findings = checked.report.findings().map(|found| {
        json!({
            "severity": found.severity.name(),
            "message": found.message,
            "help": found.help,
            "source": found.place.map(|place| place.source),
            "line": found.place.map(|place| place.line),
            "column": found.place.map(|place| place.column),
        })
    });
    json!({
        "file": checked.file.display().to_string(),
        "ok": checked.holds.is_some(),
        "errors": errors,
        "warnings": warnings,
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn convert(file: &Path, options: Options) -> Result<Exit, Failure> {
    readable(file)?;
    match Domains::load(file, options) {
        Ok(loaded) => {
            if !loaded.warnings.is_empty() {
                eprintln!("{}", loaded.warnings);
            }
            say(&loaded.domains.to_toml())?;
            Ok(Exit::Fine)
        }
        Err(report) => Ok(wanting(&report)),
    }
}

/// Shows what is wrong.
fn wanting(report: &Report) -> Exit {
    eprint!("{report}");
    Exit::Wanting
}

/// A file that cannot be read is no answer about what is in it.
fn readable(file: &Path) -> Result<(), Failure> {
    match File::open(file) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::new(format_args!("failed to read {}: {error}", file.display()))),
    }
}

/// So many things, in words.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn say(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format_args!("failed to print: {error}")))
        }
        _ => Ok(()),
    }
}
