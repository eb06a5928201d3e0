//! Certificates of a throw-away authority.

use super::process::{Folder, run};

/// An authority and a certificate of it for `localhost` and `127.0.0.1`.
#[derive(Debug)]
pub struct Certificates {
    folder: Folder,
}

impl Certificates {
    /// Makes a new authority.
    pub(super) fn new() -> Self {
        let made = Self { folder: Folder::new() };
        let file = |name| made.folder.file(name);
        let subject = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let request = |more: &[&str]| {
            let common = ["req", "-x509", "-days", "2"];
            run("openssl", &[common.as_slice(), key.as_slice(), more].concat());
        };
        let (authority, authority_key) = (file("ca.crt"), file("ca.key"));
        request(&["-subj", "/CN=test-ca", "-keyout", &authority_key, "-out", &authority]);
        let (certificate, certificate_key) = (file("server.crt"), file("server.key"));
        let signed = ["-CA", &authority, "-CAkey", &authority_key, "-addext", subject];
        let files = ["-keyout", &certificate_key, "-out", &certificate];
        let leaf = ["-addext", "basicConstraints=critical,CA:FALSE", "-subj", "/CN=localhost"];
        request(&[signed.as_slice(), leaf.as_slice(), files.as_slice()].concat());
        made
    }

    /// The path of the authority's certificate, which a client has to trust.
    pub fn authority(&self) -> String {
        self.folder.file("ca.crt")
    }

    /// The arguments of a server that speaks TLS on `port` with this certificate.
    pub(super) fn arguments(&self, port: u16) -> Vec<String> {
        let (certificate, key) = (self.folder.file("server.crt"), self.folder.file("server.key"));
        let port = port.to_string();
        let authority = self.authority();
        let arguments = [
            ["--tls-port", &port],
            ["--tls-cert-file", &certificate],
            ["--tls-key-file", &key],
            ["--tls-ca-cert-file", &authority],
            ["--tls-auth-clients", "no"],
        ];
        arguments.iter().flatten().map(ToString::to_string).collect()
    }
}
