//! Child processes that end with the test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::{env, fs, io, process, thread};

/// What to do where a program is missing.
const INSTALL: &str = "apt-get install redis-server openssl util-linux";

/// A running program.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts `program`, whose output goes to `log`.
    pub(super) fn start(program: &str, arguments: &[String], log: &Path) -> Self {
        installed(program).unwrap_or_else(|error| panic!("{error}"));
        let output = fs::File::create(log).expect("a log file");
        let errors = output.try_clone().expect("a log file");
        // The kernel's promise to kill a child with its parent.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program]).args(arguments);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = spawn(command);
        Self(child.unwrap_or_else(|error| panic!("{program}: {error}; install it: {INSTALL}")))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends a signal, by its name.
    pub(super) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "cannot send {name}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks for a program where the shell would.
///
/// # Errors
///
/// If it is not there; the error says what to install.
pub fn installed(program: &str) -> io::Result<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let missing = || io::Error::other(format!("{program} was not found; install it: {INSTALL}"));
    is_there.then_some(()).ok_or_else(missing)
}

/// Runs a program to its end.
///
/// # Panics
///
/// If it is not installed or fails.
pub(super) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install it: {INSTALL}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
}

/// Starts a command from a thread that lives as long as this process.
///
/// The kernel's promise is about the parent *thread*: a child started by a test's own thread would
/// die with that test, though another one may be using it.
fn spawn(command: Command) -> io::Result<Child> {
    type Job = (Command, Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<Mutex<Sender<Job>>> = LazyLock::new(|| {
        let (jobs, inbox) = channel::<Job>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                // Nobody waits any more if the test has panicked.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(jobs)
    });
    let (answer, outbox) = channel();
    let jobs = SPAWNER.lock().expect("nothing panics while it is held");
    jobs.send((command, answer)).expect("the spawner lives");
    drop(jobs);
    outbox.recv().expect("the spawner answers")
}

/// A port nobody listens on at this moment.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound address").port()
}

/// A folder that is removed when dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// An empty folder. Its path is short, for the path of a socket may have 107 bytes.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("tollgate-{}-{number}", process::id()));
        // Left behind by a killed process that had the same number.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub(super) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up.
        let _ = fs::remove_dir_all(&self.0);
    }
}
