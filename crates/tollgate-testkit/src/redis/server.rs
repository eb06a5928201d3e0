//! One Redis server.

use std::fs;

use super::client::{Client, Reply};
use super::process::{Folder, Process, free_port};
use super::tls::Certificates;
use super::wait_for;

/// A server of this test's own.
#[derive(Debug)]
pub struct Server {
    // None while it is killed.
    process: Option<Process>,
    port: u16,
    tls: Option<(u16, Certificates)>,
    settings: Option<String>,
    arguments: Vec<String>,
    folder: Folder,
}

/// What a [`Server`] is started with.
#[derive(Debug, Default)]
pub struct ServerBuilder {
    arguments: Vec<String>,
    configuration: Option<String>,
    tls: bool,
}

impl ServerBuilder {
    /// Adds arguments of the command line, as `["--maxmemory", "10mb"]`.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Adds a user with a password who may do everything, and lets nobody else in.
    pub fn user(self, name: &str, password: &str) -> Self {
        let password = format!(">{password}");
        self.arguments(&["--user", name, "on", &password, "~*", "&*", "+@all"])
            .arguments(&["--user", "default", "off"])
    }

    /// Speaks TLS on another port besides.
    pub fn tls(self) -> Self {
        Self { tls: true, ..self }
    }

    /// Starts from a file with these lines, which the server may rewrite; a sentinel needs one.
    pub(super) fn configuration(self, lines: String) -> Self {
        Self { configuration: Some(lines), ..self }
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Server {
        // Another process may take a free port before the server does; then another one is tried.
        wait_for("a server that starts", || {
            let folder = Folder::new();
            let settings = self.configuration.as_ref().map(|lines| {
                let file = folder.file("redis.conf");
                fs::write(&file, lines).expect("a file of settings");
                file
            });
            let tls = self.tls.then(|| (free_port(), Certificates::new()));
            let arguments = self.arguments.clone();
            let port = free_port();
            let mut server = Server { process: None, port, tls, settings, arguments, folder };
            server.launch();
            server.answers().then_some(server)
        })
    }
}

impl Server {
    /// A server with nothing special about it.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server with something special about it.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// The port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, as `127.0.0.1:6379`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL, as `redis://127.0.0.1:6379`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The port that speaks TLS and the certificates, of a server started with
    /// [`tls`](ServerBuilder::tls).
    pub fn tls(&self) -> (u16, &Certificates) {
        let (port, certificates) = self.tls.as_ref().expect("started with TLS");
        (*port, certificates)
    }

    /// The path of the socket it listens on too.
    pub fn socket(&self) -> String {
        self.folder.file("redis.sock")
    }

    /// The number of its process.
    ///
    /// # Panics
    ///
    /// If it is killed.
    pub fn process_id(&self) -> u32 {
        self.process().id()
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again on the same port, with nothing in it.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
        assert!(self.answers(), "the server does not start again: {}", self.log());
    }

    /// Stops it where it stands; its sockets stay open.
    pub fn pause(&self) {
        self.process().signal("STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process().signal("CONT");
    }

    /// A connection to it.
    pub fn client(&self) -> Client {
        Client::connect(self.port).expect("a connection")
    }

    /// Sends a command on a connection of its own and waits for the reply.
    pub fn command(&self, command: &[&str]) -> Reply {
        self.client().send(command).expect("a reply")
    }

    /// The value of a line of `INFO`.
    pub fn info(&self, name: &str) -> Option<String> {
        let info = self.command(&["INFO", "everything"]).text()?;
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned))
    }

    /// Every key there is, found by `SCAN`.
    pub fn keys(&self) -> Vec<String> {
        let mut client = self.client();
        let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
        loop {
            let reply = client.send(&["SCAN", &cursor, "COUNT", "1000"]).expect("a reply");
            let [next, found] = reply.elements() else { panic!("{reply:?}") };
            keys.extend(found.elements().iter().filter_map(Reply::text));
            cursor = next.text().expect("a cursor");
            if cursor == "0" {
                keys.sort();
                keys.dedup();
                return keys;
            }
        }
    }

    /// The keys that would stay for ever.
    pub fn keys_without_expiry(&self) -> Vec<String> {
        let mut client = self.client();
        let mut forever = |key: &String| {
            let reply = client.send(&["PTTL", key]).expect("a reply");
            // -2 is a key that has gone meanwhile.
            reply.integer() == Some(-1)
        };
        self.keys().into_iter().filter(|key| forever(key)).collect()
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server was killed")
    }

    fn launch(&mut self) {
        let folder = self.folder.path().to_str().expect("a path in UTF-8").to_owned();
        let (port, socket) = (self.port.to_string(), self.socket());
        let common = [
            ["--port", &port],
            ["--unixsocket", &socket],
            ["--bind", "127.0.0.1"],
            ["--dir", &folder],
            ["--save", ""],
            ["--appendonly", "no"],
        ];
        let mut arguments: Vec<String> = self.settings.iter().cloned().collect();
        arguments.extend(common.iter().flatten().map(ToString::to_string));
        arguments.extend(self.tls.iter().flat_map(|(port, tls)| tls.arguments(*port)));
        arguments.extend_from_slice(&self.arguments);
        let log = self.folder.path().join("log");
        self.process = Some(Process::start("redis-server", &arguments, &log));
    }

    /// Waits until it answers, or has ended.
    fn answers(&mut self) -> bool {
        let port = self.port;
        let process = self.process.as_mut().expect("just started");
        wait_for("a server that answers", || match process.has_ended() {
            true => Some(false),
            false => {
                let reply = Client::connect(port).and_then(|mut client| client.send(&["PING"]));
                reply.is_ok().then_some(true)
            }
        })
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}
