//! Writes a file of settings to start from.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::json;

use crate::exit::{Exit, Failure};

/// The file that is written.
const STARTER: &str = include_str!("init/tollgate.toml");

/// Where to write it.
#[derive(Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Args {
    /// The file to write
    #[arg(default_value = "tollgate.toml")]
    path: PathBuf,
    /// Write over a file that is there
    #[arg(long)]
    force: bool,
    /// Print what is printed as JSON
    #[arg(long)]
    json: bool,
}

/// Writes it.
pub(crate) fn run(args: Args) -> Result<Exit, Failure> {
    let path = args.path.display();
    let written = match args.force {
        true => fs::write(&args.path, STARTER),
        false => OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&args.path)
            .and_then(|mut file| file.write_all(STARTER.as_bytes())),
    };
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::new(format_args!(
            "{path} is there already; write elsewhere, or over it with --force"
        )),
        _ => Failure::new(format_args!("failed to write {path}: {error}")),
    })?;
    match args.json {
        true => println!("{}", json!({ "written": path.to_string() })),
        false => println!("wrote {path}; look at it with: tollgate config check {path}"),
    }
    Ok(Exit::Fine)
}
