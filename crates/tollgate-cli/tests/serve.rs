//! The real binary: started, asked, and told to stop.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const BODY: &str = r#"{"charges":[{"key":"user:42","quota":"2/h","algorithm":"fixed-window"}]}"#;

fn tollgate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).env_remove("TOLLGATE_HTTP");
    command
}

fn output(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = tollgate(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A server that is killed if a test ends before it does.
struct Server {
    child: Child,
    // The line it announced itself with.
    line: String,
    address: String,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        Self::spawn(tollgate(&["serve", "--http", "127.0.0.1:0"]).args(args))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let at = line.find("http://").expect("an address is printed") + "http://".len();
        let address = line[at..].split(['"', '\n']).next().unwrap().to_owned();
        Self { child, line, address }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// One request, and all that comes back.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        rest(stream)
    }

    fn take(&self) -> String {
        let length = BODY.len();
        self.ask(&format!(
            "POST /v1/take HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{BODY}"
        ))
    }

    /// A request that is under way: the server has asked for its body.
    fn half_way(&self) -> TcpStream {
        let mut stream = self.connect();
        let length = BODY.len();
        let head = format!(
            "POST /v1/take HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut go = [0; 25];
        stream.read_exact(&mut go).unwrap();
        assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits until nobody is accepted any more, which shows that the stop has begun.
    fn wait_closed(&self) {
        while TcpStream::connect(&self.address).is_ok() {
            std::thread::yield_now();
        }
    }

    /// The exit code and what was said, once it has ended by itself.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn serves_on_a_free_port_and_says_which() {
    let server = Server::start(&[]);
    let port: u16 = server.address.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
    assert_eq!(server.line, format!("listening on http://127.0.0.1:{port}\n"));
    let healthy = server.ask("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(healthy.starts_with("HTTP/1.1 200 OK\r\n"), "{healthy}");
    for status in ["200 OK", "200 OK", "429 Too Many Requests"] {
        let answer = server.take();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert!(answer.contains("\"binding\":\"user:42\""), "{answer}");
    }
}

#[test]
fn says_so_in_json_when_asked() {
    let server = Server::start(&["--json"]);
    let line: serde_json::Value = serde_json::from_str(&server.line).unwrap();
    assert_eq!(line["listening"]["http"], format!("http://{}", server.address));
}

#[test]
fn a_flag_goes_over_the_environment() {
    let mut command = tollgate(&["serve"]);
    let server = Server::spawn(command.env("TOLLGATE_HTTP", "localhost:0"));
    assert!(server.take().contains("200 OK"));
    let mut command = tollgate(&["serve", "--http", "127.0.0.1:0"]);
    let server = Server::spawn(command.env("TOLLGATE_HTTP", "nonsense"));
    assert!(server.take().contains("200 OK"));
    let mut command = tollgate(&["serve"]);
    let output = command.env("TOLLGATE_HTTP", "nonsense").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_variable_set_to_nothing_is_not_set_and_one_that_is_no_setting_is_no_mistake() {
    for (variables, value) in [
        (
            &["TOLLGATE_CONFIG", "TOLLGATE_ENVOY_CONFIG", "TOLLGATE_LOG", "TOLLGATE_STORE_URL"][..],
            "",
        ),
        (&["TOLLGATE_LOG"], "warn"),
    ] {
        let mut command = tollgate(&["serve", "--http", "127.0.0.1:0", "--prefix", "shop:eu"]);
        command.envs(variables.iter().map(|name| (name, value)));
        let server = Server::spawn(&mut command);
        server.signal("TERM");
        assert_eq!(server.end(), (Some(0), String::new()), "{variables:?}");
    }
    let mut command = tollgate(&["serve", "--http", "127.0.0.1:0"]);
    let server = Server::spawn(command.env("TOLLGATE_CONFG", "a.toml"));
    server.signal("TERM");
    let (_, said) = server.end();
    assert!(
        said.contains("\"TOLLGATE_CONFG\"") && said.contains("write TOLLGATE_CONFIG"),
        "{said}"
    );
}

#[test]
fn sigterm_and_sigint_finish_what_is_under_way_and_exit_fine() {
    for signal in ["TERM", "INT"] {
        let server = Server::start(&[]);
        let mut busy = server.half_way();
        let _idle = server.connect();
        server.signal(signal);
        server.wait_closed();
        busy.write_all(BODY.as_bytes()).unwrap();
        let answer = rest(busy);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "SIG{signal}: {answer}");
        assert_eq!(server.end(), (Some(0), String::new()), "SIG{signal}");
    }
}

#[test]
fn an_idle_server_stops_at_once() {
    let server = Server::start(&[]);
    server.take();
    let start = Instant::now();
    server.signal("TERM");
    assert_eq!(server.end(), (Some(0), String::new()));
    // Far below the time requests under way are given.
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn asked_twice_it_waits_for_nobody() {
    let server = Server::start(&[]);
    let _busy = server.half_way();
    server.signal("TERM");
    server.wait_closed();
    server.signal("INT");
    let (code, said) = server.end();
    assert_eq!(code, Some(2));
    assert!(said.contains("before all was answered"), "{said}");
}

#[test]
fn a_port_in_use_is_named_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, out, said) = output(&["serve", "--http", &address]);
    assert_eq!((code, out.as_str()), (2, ""));
    for word in [address.as_str(), "in use", "--http HOST:PORT"] {
        assert!(said.contains(word), "no {word:?} in {said:?}");
    }
}

#[test]
fn wrong_use_exits_with_2_and_says_what_is_right() {
    for (args, word) in [
        (&["serve", "--port", "80"][..], "--port"),
        (&["serve", "--http", "8080"], "HOST:PORT"),
        (&["serve", "--http"], "ADDR"),
        (&["server"], "serve"),
        (&["man", "nothing"], "completions, man"),
        (&["completions", "tcl"], "bash"),
        (&[], "Usage"),
    ] {
        let (code, out, said) = output(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(said.contains(word), "{args:?}: no {word:?} in {said:?}");
    }
}

#[test]
fn it_describes_itself() {
    for (args, word) in [
        (&["--help"][..], "serve"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["serve", "--help"], "TOLLGATE_HTTP"),
        (&["serve", "--help"], "with a password belongs in the variable"),
        (&["take", "--help"], "with a password belongs in the variable"),
        (&["take", "--help"], "which only POST /v1/take reaches"),
        (&["peek", "--help"], "which only POST /v1/peek reaches"),
        (&["reset", "--help"], "which only POST /v1/reset reaches"),
        (&["man"], ".TH tollgate 1"),
        (&["man", "serve"], "TOLLGATE_HTTP"),
        (&["completions", "bash"], "complete -F _tollgate"),
        (&["completions", "zsh"], "#compdef tollgate"),
        (&["completions", "fish"], "complete -c tollgate"),
    ] {
        let (code, out, said) = output(args);
        assert_eq!((code, said.as_str()), (0, ""), "{args:?}");
        assert!(out.contains(word), "{args:?}: no {word:?} in {out}");
    }
}
