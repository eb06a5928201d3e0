//! Files that change under a running server: real files, real links, a real gate.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use tollgate::{Costs, Gate, ManualClock, MemoryStore, Subject};
use tollgate_config::{Loader, Reloader};

/// Long beyond any doubt: what is waited for happens within a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that is gone when the test is.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn policy(limit: u64) -> String {
    format!("[[rule]]\nname = 'all'\nquota = '{limit}/day'\nalgorithm = 'fixed-window'\n")
}

/// What was read each time: the limit of the one rule, or the first complaint.
fn watch(path: &Path) -> (Reloader, Receiver<Result<u64, String>>) {
    let loader = Loader::new().file(path);
    let (sender, received) = mpsc::channel();
    let reloader = Reloader::new(
        [path],
        move || loader.load(),
        move |read| {
            let said = match read {
                Ok(loaded) => {
                    let policy = &loaded.settings.policy;
                    let resolved = policy.resolve(&Subject::new(), &Costs::default());
                    let charges = resolved.charges().unwrap().set().charges().to_owned();
                    Ok(charges.first().map_or(0, |charge| charge.meter.limit()))
                }
                Err(report) => Err(report.findings().next().unwrap().message.to_owned()),
            };
            sender.send(said).unwrap();
        },
    );
    (reloader, received)
}

fn next(received: &Receiver<Result<u64, String>>) -> Result<u64, String> {
    received.recv_timeout(PATIENCE).expect("the change was not seen")
}

#[test]
fn a_file_written_in_place_is_read_again() {
    let folder = Folder::new("in-place");
    let path = folder.join("tollgate.toml");
    fs::write(&path, policy(1)).unwrap();
    let (_reloader, received) = watch(&path);
    fs::write(&path, policy(2)).unwrap();
    assert_eq!(next(&received), Ok(2));
}

#[test]
fn a_file_renamed_over_is_read_again_and_again() {
    let folder = Folder::new("renamed");
    let path = folder.join("tollgate.toml");
    fs::write(&path, policy(1)).unwrap();
    let (_reloader, received) = watch(&path);
    for limit in 2..6 {
        fs::write(folder.join(".new"), policy(limit)).unwrap();
        fs::rename(folder.join(".new"), &path).unwrap();
        assert_eq!(next(&received), Ok(limit));
    }
}

#[test]
fn a_kubernetes_volume_is_followed_through_both_links() {
    let folder = Folder::new("kubernetes");
    let publish = |limit: u64| {
        let version = format!("..version-{limit}");
        fs::create_dir(folder.join(&version)).unwrap();
        fs::write(folder.join(&version).join("tollgate.toml"), policy(limit)).unwrap();
        symlink(&version, folder.join("..data_tmp")).unwrap();
        let before = fs::read_link(folder.join("..data")).ok();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        if let Some(before) = before {
            fs::remove_dir_all(folder.join(before.to_str().unwrap())).unwrap();
        }
    };
    publish(1);
    let path = folder.join("tollgate.toml");
    symlink("..data/tollgate.toml", &path).unwrap();
    let (_reloader, received) = watch(&path);
    for limit in 2..6 {
        publish(limit);
        assert_eq!(next(&received), Ok(limit));
    }
}

#[test]
fn a_link_into_another_directory_is_followed() {
    let (here, there) = (Folder::new("here"), Folder::new("there"));
    fs::write(there.join("real.toml"), policy(1)).unwrap();
    symlink(there.join("real.toml"), here.join("tollgate.toml")).unwrap();
    let (_reloader, received) = watch(&here.join("tollgate.toml"));
    fs::write(there.join("real.toml"), policy(2)).unwrap();
    assert_eq!(next(&received), Ok(2));
}

#[test]
fn a_file_that_appears_later_is_read_then() {
    let folder = Folder::new("later");
    let path = folder.join("tollgate.toml");
    let (_reloader, received) = watch(&path);
    fs::write(&path, policy(3)).unwrap();
    assert_eq!(next(&received), Ok(3));
    fs::remove_file(&path).unwrap();
    assert!(next(&received).unwrap_err().starts_with("failed to read"));
}

/// Nothing can be watched in a directory that is not there: looking now and then has to do.
#[test]
fn a_directory_that_appears_later_is_noticed_without_being_watched() {
    let folder = Folder::new("no-directory");
    let path = folder.join("mounted/late/tollgate.toml");
    let (_reloader, received) = watch(&path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(folder.join("new"), policy(4)).unwrap();
    fs::rename(folder.join("new"), &path).unwrap();
    assert_eq!(next(&received), Ok(4));
}

/// A file is often emptied just before it is written; one that stays empty is meant to be.
#[test]
fn an_emptied_file_is_believed_only_when_it_stays_so() {
    let folder = Folder::new("emptied");
    let path = folder.join("tollgate.toml");
    fs::write(&path, policy(1)).unwrap();
    let (_reloader, received) = watch(&path);
    fs::write(&path, "").unwrap();
    assert_eq!(next(&received), Ok(0));
}

#[test]
fn a_directory_of_envoys_files_is_watched_whole() {
    use tollgate_config::envoy::{Domains, Options};
    let folder = Folder::new("domains");
    fs::write(folder.join("a.yaml"), "domain: a\n").unwrap();
    let (sender, received) = mpsc::channel();
    let directory = folder.0.clone();
    let read = move || Domains::load(&directory, Options::default());
    let _reloader = Reloader::new([&folder.0], read, move |read| {
        let names = read.unwrap().domains.names().map(str::to_owned);
        sender.send(names.collect::<Vec<_>>()).unwrap();
    });
    fs::write(folder.join("new"), "domain: b\n").unwrap();
    fs::rename(folder.join("new"), folder.join("b.yaml")).unwrap();
    // A look between the two steps sees one domain.
    let seen = |names: &Vec<String>| *names == ["a", "b"];
    let found = (0..2).find(|_| seen(&received.recv_timeout(PATIENCE).unwrap()));
    assert!(found.is_some());
}

#[test]
fn asking_reads_at_once_and_says_how_it_went() {
    let folder = Folder::new("asked");
    let path = folder.join("tollgate.toml");
    fs::write(&path, policy(1)).unwrap();
    let (reloader, received) = watch(&path);
    reloader.reload().unwrap();
    assert_eq!(received.try_recv(), Ok(Ok(1)));
    fs::write(&path, "rule = 1").unwrap();
    let report = reloader.reload().unwrap_err();
    assert!(report.to_string().contains("must be a list of tables"), "{report}");
    assert!(next(&received).is_err());
}

#[test]
fn a_broken_file_keeps_the_policy_and_a_mended_one_replaces_it() {
    let folder = Folder::new("broken");
    let path = folder.join("tollgate.toml");
    fs::write(&path, policy(1)).unwrap();
    let loader = Loader::new().file(&path);
    let gate = Arc::new(Gate::new(loader.load().unwrap().settings.policy, MemoryStore::new()));
    let (told, received) = mpsc::channel();
    let in_force = Arc::clone(&gate);
    let _reloader = Reloader::new(
        [&path],
        move || loader.load(),
        move |read| {
            if let Ok(loaded) = read {
                in_force.set_policy(Arc::clone(&loaded.settings.policy));
            }
            told.send(read.is_ok()).unwrap();
        },
    );
    fs::write(&path, policy(1).replace("quota", "qouta")).unwrap();
    assert_eq!(received.recv_timeout(PATIENCE), Ok(false));
    assert_eq!(gate.policy().version(), 1);
    fs::write(&path, policy(7)).unwrap();
    assert_eq!(received.recv_timeout(PATIENCE), Ok(true));
    assert_eq!(gate.policy().version(), 3);
    assert_eq!(gate.policy().rules().len(), 1);
}

/// Fifty clients take what they can while the limit goes down and up. What is granted in all is what
/// the most generous limit allows: nobody's usage is forgotten, and no decision is lost.
#[test]
fn reloading_under_load_grants_nothing_extra_and_loses_nothing() {
    const CLIENTS: u64 = 50;
    let folder = Folder::new("load");
    let path = folder.join("tollgate.toml");
    fs::write(&path, policy(10_000)).unwrap();
    let loader = Loader::new().file(&path);
    let store = MemoryStore::with_clock(ManualClock::at_secs(1_000_000));
    let gate = Arc::new(Gate::new(loader.load().unwrap().settings.policy, store));
    let in_force = Arc::clone(&gate);
    let reloader = Reloader::new(
        [&path],
        move || loader.load(),
        move |read| {
            in_force.set_policy(Arc::clone(&read.unwrap().settings.policy));
        },
    );
    let (granted, asked, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let taken = || granted.load(Ordering::SeqCst);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let admission = gate.admit_now(&Subject::new(), &Costs::default());
                    asked.fetch_add(1, Ordering::SeqCst);
                    granted.fetch_add(u64::from(admission.is_allowed()), Ordering::SeqCst);
                    thread::yield_now();
                }
            });
        }
        let swap = |limit: u64| {
            fs::write(folder.join(".new"), policy(limit)).unwrap();
            fs::rename(folder.join(".new"), &path).unwrap();
            reloader.reload().unwrap();
        };
        // Lowered below what may be taken by now, raised, lowered, raised.
        for limit in [100, 20_000, 50, 30_000] {
            swap(limit);
            let before = asked.load(Ordering::SeqCst);
            while asked.load(Ordering::SeqCst) < before + 2 * CLIENTS {
                thread::yield_now();
            }
        }
        while taken() < 30_000 {
            thread::yield_now();
        }
        let before = asked.load(Ordering::SeqCst);
        while asked.load(Ordering::SeqCst) < before + 10 * CLIENTS {
            thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(taken(), 30_000);
}
