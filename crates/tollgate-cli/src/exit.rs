//! How the command ends: its exit codes, all of them, and what it says when it fails.

use std::fmt::{self, Display};
use std::process::ExitCode;

use tollgate_config::Report;

/// What the exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: all is fine.
    Fine,
    /// 1: the answer is no: refused, or found wanting.
    Wanting,
    /// 2: wrong use, or failure.
    Failed,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Wanting => 1,
            Exit::Failed => 2,
        })
    }
}

impl Exit {
    /// Prints what the parser has to say: help and version are no errors.
    pub(crate) fn of_usage(error: &clap::Error) -> Self {
        // If not even this can be printed, the code still tells.
        let _ = error.print();
        match error.use_stderr() {
            true => Self::Failed,
            false => Self::Fine,
        }
    }
}

/// Why the command failed, as told to whoever typed it: lowercase, with the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Display) -> Self {
        Self(message.to_string())
    }

    /// What is wrong with the settings, at length.
    pub(crate) fn settings(report: Report) -> Self {
        Self(format!("the settings are wrong\n{}", report.to_string().trim_end()))
    }

    /// Says why, and ends in failure.
    pub(crate) fn tell(self) -> Exit {
        eprintln!("tollgate: {self}");
        Exit::Failed
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
