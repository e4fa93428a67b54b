//! Runs the servers of `servers.py` in a separate process.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use sandfork::{CallerEnvironment, Sandbox};
use serde_json::Value;

use crate::recipe::Recipe;
use crate::world::World;

/// The value of `TOKEN` in the caller's environment.
pub const SECRET: &str = "hunter2-of-the-caller";

/// Test servers that run until the value is dropped.
pub struct Servers {
    child: Child,
    ports: Value,
    place: tempfile::TempDir,
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The servers end at EOF of their stdin.
        drop(self.child.stdin.take());
        _ = self.child.wait();
    }
}

impl Servers {
    pub fn start(world: &World) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        for (name, text) in [
            ("servers.py", include_str!("servers.py")),
            ("host.pem", include_str!("host.pem")),
            ("authority.pem", include_str!("authority.pem")),
        ] {
            fs::write(place.path().join(name), text).expect("the file is written");
        }
        let mut child = Command::new(&world.host.interpreter.executable)
            .arg(place.path().join("servers.py"))
            .arg(place.path().join("host.pem"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the ports are printed");
        let ports = serde_json::from_str(&line).expect("the ports are JSON");
        Self {
            child,
            ports,
            place,
        }
    }

    fn port(&self, name: &str) -> u16 {
        let port = self.ports[name].as_u64().expect("a port");
        u16::try_from(port).expect("a port")
    }

    /// Returns the ports of the HTTP, HTTPS and raw echo servers.
    pub fn ports(&self) -> [u16; 3] {
        ["http", "https", "echo"].map(|name| self.port(name))
    }

    pub fn resolver(&self) -> u16 {
        self.port("resolver")
    }

    /// Inserts the ports into a guest program.
    pub fn program(&self, text: &str) -> String {
        let (docstring, rest) = text.split_once("\n\n").expect("a docstring");
        format!("{docstring}\nPORTS = {:?}\n{rest}", self.ports())
    }

    /// Builds a sandbox whose caller trusts the servers' certificate authority and has a secret.
    pub fn sandbox(&self, world: &World, recipe: Recipe) -> Sandbox {
        let trusted: PathBuf = self.place.path().join("authority.pem");
        let environment = CallerEnvironment::current().changed_by([
            ("SSL_CERT_FILE", Some(trusted.display().to_string())),
            ("TOKEN", Some(SECRET.to_owned())),
        ]);
        let policy = recipe.python_unless_named(world.python()).policy();
        let builder = Sandbox::builder().policy(policy).environment(environment);
        let built = builder.ready(0).build();
        built.unwrap_or_else(|error| panic!("no sandbox: {error}"))
    }

    /// Returns the log of the names resolved and the requests received.
    pub fn log(&self) -> Value {
        let address = (Ipv4Addr::LOCALHOST, self.port("http"));
        let mut stream = TcpStream::connect(address).expect("the server listens");
        let request = b"GET /log HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("the peer reads");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("the server replies");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("valid JSON")
    }
}
