//! What the command says about itself: completions and manual pages.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::{Exit, Failure};

/// Prints completions for `shell`.
pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut page = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "tollgate", &mut page);
    print(&page)
}

/// Prints the manual page of `command`, or of the whole.
pub(crate) fn man(command: Option<&str>) -> Result<Exit, Failure> {
    let mut whole = Args::command();
    // Gives every command its full name, which its page is headed with.
    whole.build();
    let found = match command {
        None => Some(&whole),
        Some(name) => whole.find_subcommand(name),
    };
    let Some(found) = found else {
        let names: Vec<_> = whole.get_subcommands().map(|known| known.get_name()).collect();
        let names = names.join(", ");
        let name = command.unwrap_or_default();
        return Err(Failure::new(format_args!("no command {name:?}; there are {names}")));
    };
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(found.clone()).render(&mut page);
    rendered.map_err(|error| Failure::new(format_args!("failed to write the page: {error}")))?;
    print(&page)
}

fn print(page: &[u8]) -> Result<Exit, Failure> {
    match io::stdout().lock().write_all(page) {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format_args!("failed to print: {error}")))
        }
        _ => Ok(Exit::Fine),
    }
}
