//! Starts the egress process like a supervisor, and connects to it like a guest.

use std::io::{Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, ToSocketAddrs, UdpSocket,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use sandfork_egress::control::{
    Authority, FromEgress, FromNetwork, Proxy, Question, Report, Resolution, Service,
    ServiceSocket, Start, ToEgress, ToNetwork,
};
use sandfork_egress::dns::{Answer, RecordKind, answer, question};
use sandfork_egress::refusal::Verdict;
use sandfork_egress::rules::{Rule, Rules};
use sandfork_jail::control::{MAX_MESSAGE, recv_message, send_message};

/// Longer than any expected event takes.
pub const LONG: Duration = Duration::from_secs(60);

/// A seccomp filter that allows every system call. The supervisor supplies the real one.
const NO_FILTER: (u16, u8, u8, u32) = (0x06, 0, 0, 0x7fff_0000);

/// A rule for a test server as JSON. `rest` holds further keys after a comma.
pub fn rule(port: u16, rest: &str) -> String {
    format!(r#"{{"host":"a.example","ports":[{port}],"private":true{rest}}}"#)
}

/// Entries of which the first withholds the credential of the second from `/echo/`.
pub fn echo_rules(port: u16) -> [String; 2] {
    [
        rule(port, r#","paths":["/echo/*"]"#),
        rule(
            port,
            r#","credential":{"header":"Authorization","value":"Bearer ours"}"#,
        ),
    ]
}

/// Paths that some server reads as `/echo/h`.
pub const ECHO_SPELLINGS: [&str; 13] = [
    "/./echo/h",
    "/x/../echo/h",
    "/x/..;/echo/h",
    "/echo%2fh",
    "/echo/%2e/h",
    "/x/%2e%2E/echo/h",
    "//echo/h",
    "/echo//h",
    "/%2565cho/h",
    "/echo;x/h",
    "/ECHO/h",
    "/echo./h",
    "/echo%20/h",
];

/// The configuration of a test.
pub struct Setup {
    pub rules: Vec<String>,
    pub hosts: Vec<(String, IpAddr)>,
    pub servers: Vec<SocketAddr>,
    pub connections: u32,
    pub bytes: u64,
    pub proxy: Option<Proxy>,
    pub asks: bool,
    pub trust: Option<PathBuf>,
    pub authority: Option<Authority>,
}

impl Setup {
    /// Creates a configuration with rules as JSON, and names that all resolve to 127.0.0.1.
    pub fn new(rules: &[String], names: &[&str]) -> Self {
        let local = |name: &&str| ((*name).to_owned(), IpAddr::from(Ipv4Addr::LOCALHOST));
        Self {
            rules: rules.to_vec(),
            hosts: names.iter().map(local).collect(),
            servers: vec![],
            connections: 64,
            bytes: 100 << 20,
            proxy: None,
            asks: false,
            trust: None,
            authority: None,
        }
    }

    /// Starts the process, with listeners for made-up addresses on these ports.
    pub fn start(self, ports: &[u16]) -> Scene {
        let (control, theirs) = pair();
        let child = Command::new(env!("CARGO_BIN_EXE_sandfork-egress"))
            .stdin(theirs)
            .stdout(Stdio::null())
            .spawn()
            .expect("the process starts");
        let rule = |text: &String| -> Rule { serde_json::from_str(text).expect("a rule") };
        let rules = Rules::new(self.rules.iter().map(rule).collect()).expect("rules");
        let start = ToEgress::Start(Box::new(Start {
            rules,
            connections: self.connections,
            bytes: self.bytes,
            proxy: self.proxy,
            asks: self.asks,
            resolution: Resolution {
                servers: self.servers,
                hosts: self.hosts,
            },
            trust: self.trust,
            authority: self.authority,
            identity: None,
            filter: vec![NO_FILTER],
            landlock_abi: 1,
        }));
        send_message(control.as_fd(), &start, &[]).expect("the peer listens");
        let authority = match receive(control.as_fd()) {
            Some(FromEgress::Ready(authority)) => authority,
            other => panic!("{other:?}"),
        };
        let mut scene = Scene {
            child,
            control: Some(control),
            link: None,
            authority,
            names: UNSET,
            proxy: UNSET,
        };
        scene.add_worker(ports);
        scene
    }
}

const UNSET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A running process with one worker.
pub struct Scene {
    child: Child,
    control: Option<OwnedFd>,
    pub link: Option<OwnedFd>,
    pub authority: Authority,
    names: SocketAddr,
    pub proxy: SocketAddr,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.control = None;
        self.child.wait().expect("a child process");
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
    socketpair(family, kind, None, SockFlag::SOCK_CLOEXEC).expect("a pair of sockets")
}

fn receive<M: serde::de::DeserializeOwned>(socket: BorrowedFd) -> Option<M> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let received = recv_message(socket, &mut buffer).expect("a message");
    received.map(|(message, _)| message)
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => unreachable!("all are IPv4"),
    }
}

impl Scene {
    fn add_worker(&mut self, ports: &[u16]) {
        let (link, theirs) = pair();
        // The host's loopback network stands in for the guest's. Ports are served at the addresses of exact names, in
        // order.
        let any = (Ipv4Addr::new(127, 1, 0, 1), 0);
        let names = UdpSocket::bind(any).expect("a port");
        let proxy = TcpListener::bind(any).expect("a port");
        self.names = names.local_addr().expect("the socket is bound");
        self.proxy = proxy.local_addr().expect("the socket is bound");
        let listeners: Vec<TcpListener> = (2..)
            .zip(ports)
            .map(|(nth, port)| TcpListener::bind((Ipv4Addr::new(127, 1, 0, nth), *port)))
            .collect::<Result<_, _>>()
            .expect("the ports are free on these addresses");
        let mut sockets = vec![
            (Service::Names, self.names),
            (Service::Connections, self.proxy),
        ];
        let others = listeners
            .iter()
            .map(|it| it.local_addr().expect("the socket is bound"));
        sockets.extend(others.map(|address| (Service::Connections, address)));
        let sockets = sockets.into_iter().map(|(serves, address)| ServiceSocket {
            serves,
            address: v4(address),
        });
        let serve = ToEgress::Serve {
            sockets: sockets.collect(),
        };
        let mut descriptors = vec![theirs.as_fd(), names.as_fd(), proxy.as_fd()];
        descriptors.extend(listeners.iter().map(AsFd::as_fd));
        let control = self.control.as_ref().expect("an open socket");
        send_message(control.as_fd(), &serve, &descriptors).expect("the peer listens");
        self.link = Some(link);
    }

    /// Requests a report.
    pub fn report(&self) -> Report {
        let link = self.link.as_ref().expect("an open socket").as_fd();
        send_message(link, &ToNetwork::Report, &[]).expect("the peer listens");
        loop {
            if let FromNetwork::Report(report) = receive(link).expect("a report") {
                return report;
            }
        }
    }

    /// Waits for the next question.
    pub fn question(&self) -> Question {
        let link = self.link.as_ref().expect("an open socket").as_fd();
        match receive(link).expect("a question") {
            FromNetwork::Question(question) => question,
            FromNetwork::Report(report) => panic!("{report:?}"),
        }
    }

    /// Answers a question.
    pub fn decide(&self, question: u64, allowed: Option<bool>) {
        let link = self.link.as_ref().expect("an open socket").as_fd();
        let decided = ToNetwork::Decided { question, allowed };
        send_message(link, &decided, &[]).expect("the peer listens");
    }

    /// Requests reports until their sum satisfies the predicate: the end of a connection is reported with a delay.
    pub fn await_report(&self, wanted: impl Fn(&Report) -> bool) -> Report {
        let mut all = Report::default();
        for _ in 0..1200 {
            let report = self.report();
            all.connections.retain(|connection| !connection.open);
            all.connections.extend(report.connections);
            all.count += report.count;
            all.sent += report.sent;
            all.received += report.received;
            if wanted(&all) {
                return all;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the expected report did not arrive: {all:?}");
    }

    /// Waits until a report contains this verdict.
    pub fn await_verdict(&self, verdict: Verdict) -> Report {
        self.await_report(|report| report.connections.iter().any(|it| it.verdict == verdict))
    }

    /// Queries the guest's resolver.
    pub fn query(&self, name: &str, kind: RecordKind) -> Answer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.set_read_timeout(Some(LONG)).expect("a time");
        let question = question(7, name, kind).expect("a name");
        socket
            .send_to(&question, self.names)
            .expect("a successful send");
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).expect("an answer");
        answer(&question, &buffer[..length]).expect("an answer to the question")
    }

    /// The made-up address of a name.
    pub fn address_of(&self, name: &str) -> IpAddr {
        match self.query(name, RecordKind::A) {
            Answer::Addresses(addresses) => addresses[0],
            other => panic!("{other:?}"),
        }
    }

    /// Connects like a guest that is not aware of proxies.
    pub fn connect(&self, name: &str, port: u16) -> TcpStream {
        connect((self.address_of(name), port))
    }

    /// Connects to the proxy.
    pub fn connect_proxy(&self) -> TcpStream {
        connect(self.proxy)
    }

    /// Opens a tunnel through the proxy. Returns the response head and the stream.
    pub fn tunnel(&self, target: &str) -> (String, TcpStream) {
        let mut stream = self.connect_proxy();
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .expect("the peer reads");
        let head = read_head(&mut stream);
        (head, stream)
    }

    /// Closes the control socket and waits for the process to exit.
    pub fn end(mut self) -> std::process::ExitStatus {
        self.control = None;
        self.child.wait().expect("a child process")
    }
}

pub fn connect(to: impl ToSocketAddrs) -> TcpStream {
    let stream = TcpStream::connect(to).expect("the peer listens");
    stream.set_read_timeout(Some(LONG)).expect("a time");
    stream
}

/// Reads the head of an HTTP message, up to the empty line.
pub fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8(head).expect("text")
}

/// Reads until EOF or a reset.
pub fn read_all(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    _ = stream.read_to_end(&mut all);
    all
}

/// Sends a request and reads the response until the connection ends.
pub fn exchange(stream: &mut (impl Read + Write), request: &str) -> String {
    stream
        .write_all(request.as_bytes())
        .expect("the peer reads");
    String::from_utf8_lossy(&read_all(stream)).into_owned()
}
