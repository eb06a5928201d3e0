//! Reading again what has changed, without anybody noticing.
//!
//! ```text
//! directories ──event──▶ quiet for a moment ──▶ has the text changed? ──▶ read ──▶ tell
//! every few seconds ─────────────────────────▶        ┘                   ▲
//! reload(), for SIGHUP and operators ─────────────────────────────────────┘
//! ```
//!
//! Directories are watched, not files: editors put a new file in the place of the old, and
//! Kubernetes moves a link to a directory that holds links (`tollgate.toml` → `..data/tollgate.toml`,
//! `..data` → `..2026_11_16`). What counts is whether the text is another; and where the system tells
//! of no changes, as on some network drives, the text is looked at every few seconds all the same.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::loader::read_text;
use crate::report::Report;

/// How long nothing must happen before a change counts as finished: writers take several steps.
const QUIET: Duration = Duration::from_millis(50);

/// How long a change may take to finish, should somebody write without a pause.
const LONGEST_CHANGE: Duration = Duration::from_secs(1);

/// How often the text is looked at without being told to.
const POLL: Duration = Duration::from_secs(2);

/// Links followed from one name to the next; more are a circle.
const MAX_LINKS: usize = 16;

/// Files looked at in a directory.
const MAX_FILES: usize = 10_000;

/// Watches files and reads them again when they change; ends when it is dropped.
///
/// What was read before stays in force until something else could be read whole: `read` makes the new
/// value, `tell` is handed it or everything that is wrong, and puts it in force. Both run on a thread
/// of the reloader's own, one call at a time.
///
/// ```no_run
/// use std::sync::Arc;
/// use tollgate::{Gate, MemoryStore};
/// use tollgate_config::{Loader, Reloader};
///
/// let path = "tollgate.toml";
/// let loader = Loader::new().file(path).own_environment();
/// let settings = loader.load()?.settings;
/// let gate = Arc::new(Gate::new(settings.policy, MemoryStore::new()));
/// let in_force = Arc::clone(&gate);
/// let reloader = Reloader::new([path], move || loader.load(), move |read| match read {
///     Ok(loaded) => drop(in_force.set_policy(loaded.settings.policy.clone())),
///     Err(report) => eprintln!("keeping the policy there is:\n{report}"),
/// });
/// // On SIGHUP, or when an operator asks:
/// reloader.reload()?;
/// # Ok::<(), tollgate_config::Report>(())
/// ```
#[derive(Debug)]
pub struct Reloader {
    orders: Sender<Order>,
    // Taken only to be waited for.
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told.
enum Order {
    /// Something happened in a watched directory.
    Look,
    /// Read now, whatever happened, and say how it went.
    Read(Sender<Result<(), Report>>),
    Stop,
}

impl Reloader {
    /// Watches `paths`: files, or directories whose files are read.
    ///
    /// `read` should have been called once before; it is called again only when something changes.
    pub fn new<T>(
        paths: impl IntoIterator<Item = impl Into<PathBuf>>,
        read: impl FnMut() -> Result<T, Report> + Send + 'static,
        tell: impl FnMut(Result<&T, &Report>) + Send + 'static,
    ) -> Self {
        let paths: Vec<PathBuf> = paths.into_iter().map(Into::into).collect();
        let (orders, received) = mpsc::channel();
        // Before anything else: a change made from now on is seen.
        let watch = Watch::new(paths, orders.clone());
        let seen = watch.look();
        let mut worker = Worker { watch, read, tell, seen, doubted: false };
        let thread = thread::spawn(move || worker.run(&received));
        Self { orders, thread: Some(thread) }
    }

    /// Reads now, whether anything has changed or not, and says how it went. Whoever is told of
    /// changes is told of this too, before it returns.
    pub fn reload(&self) -> Result<(), Report> {
        let (reply, replied) = mpsc::channel();
        let gone = || Report::of("failed to reload: the reloader has ended", "restart the server");
        self.orders.send(Order::Read(reply)).map_err(|_| gone())?;
        replied.recv().map_err(|_| gone())?
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so, and there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

/// What runs on the thread.
struct Worker<R, F> {
    watch: Watch,
    read: R,
    tell: F,
    /// The text that was read last.
    seen: Look,
    /// Whether the files were empty when last looked at, and that was not believed.
    doubted: bool,
}

impl<T, R, F> Worker<R, F>
where
    R: FnMut() -> Result<T, Report>,
    F: FnMut(Result<&T, &Report>),
{
    fn run(&mut self, orders: &Receiver<Order>) {
        loop {
            match orders.recv_timeout(POLL) {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Order::Read(reply)) => {
                    self.seen = self.watch.look();
                    // Whoever asked may have gone.
                    let _ = reply.send(self.reload());
                }
                Ok(Order::Look) => match wait_for_quiet(orders) {
                    Some(Order::Stop) => return,
                    Some(Order::Read(reply)) => {
                        self.seen = self.watch.look();
                        let _ = reply.send(self.reload());
                    }
                    _ => self.look_again(Patience::Short),
                },
                Err(RecvTimeoutError::Timeout) => self.look_again(Patience::Long),
            }
        }
    }

    /// Reads if the text is another. A file that is suddenly empty is probably about to be written,
    /// and is believed only when it still is some time later.
    fn look_again(&mut self, patience: Patience) {
        let look = self.watch.look();
        if look == self.seen {
            return;
        }
        let sudden = look.is_empty && !self.seen.is_empty;
        if sudden && !(self.doubted && patience == Patience::Long) {
            self.doubted = true;
            return;
        }
        (self.seen, self.doubted) = (look, false);
        let _ = self.reload();
    }

    fn reload(&mut self) -> Result<(), Report> {
        // Links may lead elsewhere now.
        self.watch.follow();
        let read = (self.read)();
        (self.tell)(read.as_ref());
        read.map(drop)
    }
}

/// Whether something just happened, or nothing has for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Short,
    Long,
}

/// Waits until nothing happens any more; returns an order that cannot wait.
fn wait_for_quiet(orders: &Receiver<Order>) -> Option<Order> {
    let latest = Instant::now() + LONGEST_CHANGE;
    while Instant::now() < latest {
        match orders.recv_timeout(QUIET) {
            Ok(Order::Look) => {}
            Ok(order) => return Some(order),
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => return Some(Order::Stop),
        }
    }
    None
}

/// What there is to see of the files, in a few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    digest: u64,
    is_empty: bool,
}

/// The files, and the directories in which something can happen to them.
struct Watch {
    paths: Vec<PathBuf>,
    /// `None` where the system cannot tell of changes; then looking now and then has to do.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

impl Watch {
    fn new(paths: Vec<PathBuf>, orders: Sender<Order>) -> Self {
        let heard = move |event: notify::Result<notify::Event>| {
            // Reading is no change; what cannot be understood may be one.
            let reading = matches!(&event, Ok(event) if matches!(event.kind, EventKind::Access(_)));
            if !reading {
                let _ = orders.send(Order::Look);
            }
        };
        let watcher = notify::recommended_watcher(heard).ok();
        let mut watch = Self { paths, watcher, watched: BTreeSet::new() };
        watch.follow();
        watch
    }

    /// Watches every directory on the way to the files.
    fn follow(&mut self) {
        let now: BTreeSet<PathBuf> = self.paths.iter().flat_map(|path| directories(path)).collect();
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.watched.difference(&now) {
            let _ = watcher.unwatch(gone);
        }
        // All of them again: a directory may have been replaced by another of the same name. One that
        // cannot be watched is looked at now and then.
        for directory in &now {
            let _ = watcher.watch(directory, RecursiveMode::NonRecursive);
        }
        self.watched = now;
    }

    fn look(&self) -> Look {
        let mut hasher = DefaultHasher::new();
        let mut is_empty = true;
        for file in self.paths.iter().flat_map(|path| files(path)) {
            file.hash(&mut hasher);
            match read_text(&file) {
                Ok(text) => {
                    is_empty &= text.trim().is_empty();
                    text.hash(&mut hasher);
                }
                Err(error) => {
                    is_empty = false;
                    error.kind().hash(&mut hasher);
                }
            }
        }
        Look { digest: hasher.finish(), is_empty }
    }
}

/// The files that are read for a path.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return vec![path.to_owned()] };
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files.truncate(MAX_FILES);
    files
}

/// The directories in which a path can be made to mean something else.
fn directories(path: &Path) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let parent = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
            Some(parent) => parent.to_owned(),
            None => break,
        };
        directories.push(parent.clone());
        match fs::read_link(&path) {
            Ok(target) => path = parent.join(target),
            Err(_) => break,
        }
    }
    if path.is_dir() {
        directories.push(path);
    }
    directories
}
