//! Test servers, each with its own threads, which end with the test program.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::scene::read_head;

/// A server that counts its connections.
#[derive(Clone)]
pub struct Server {
    pub port: u16,
    pub connections: Arc<AtomicUsize>,
    /// The heads of the requests received.
    pub heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server that handles each connection with `serve`.
    pub fn new(serve: impl Fn(TcpStream, &Server) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let server = Self {
            port: listener.local_addr().expect("the socket is bound").port(),
            connections: Arc::default(),
            heads: Arc::default(),
        };
        let (own, serve) = (server.clone(), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                own.connections.fetch_add(1, Ordering::SeqCst);
                let (own, serve) = (own.clone(), Arc::clone(&serve));
                thread::spawn(move || serve(stream, &own));
            }
        });
        server
    }

    /// Starts a server that echoes bytes.
    pub fn echo() -> Self {
        Self::new(|mut stream, _| {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
        })
    }

    /// Starts a server that upgrades to WebSocket on request, then sends a greeting and echoes bytes.
    pub fn websocket() -> Self {
        Self::new(|mut stream, own| {
            let head = read_head(&mut stream);
            let switches = head.to_lowercase().contains("upgrade: websocket");
            own.heads.lock().expect("no panic").push(head);
            if !switches {
                _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                return;
            }
            let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst";
            stream.write_all(answer).expect("the peer reads");
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
        })
    }

    /// Starts an HTTP server for requests without a body.
    pub fn http() -> Self {
        Self::new(|mut stream, own| own.answer_requests(&mut stream))
    }

    /// Responds to each request with its own head, until the client disconnects.
    pub fn answer_requests(&self, stream: &mut (impl Read + Write)) {
        loop {
            let head = read_head(stream);
            if head.is_empty() {
                return;
            }
            let is_last = head.to_lowercase().contains("connection: close");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}",
                head.len()
            );
            self.heads.lock().expect("no panic").push(head);
            if stream.write_all(answer.as_bytes()).is_err() || is_last {
                return;
            }
        }
    }

    pub fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

/// A resolver that answers queries with these addresses in turn, and records the queries.
pub struct Resolver {
    pub address: SocketAddr,
    pub questions: Arc<Mutex<Vec<String>>>,
}

/// Binds a UDP and a TCP socket to the same port. A port that is free for UDP may be used for TCP by another test.
fn on_one_port() -> (UdpSocket, TcpListener, SocketAddr) {
    let pair = || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = socket.local_addr().expect("the socket is bound");
        let listener = TcpListener::bind(address).ok()?;
        Some((socket, listener, address))
    };
    (0..100).find_map(|_| pair()).expect("the same port")
}

/// The transport of a resolver's replies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answers {
    OverUdp,
    /// The reply over UDP is truncated.
    OverTcp,
}

impl Resolver {
    pub fn new(turns: Vec<Vec<IpAddr>>, answers: Answers) -> Self {
        let (socket, listener, address) = on_one_port();
        let questions = Arc::new(Mutex::new(Vec::new()));
        let (asked, of_tcp) = (Arc::clone(&questions), turns.clone());
        thread::spawn(move || {
            let mut buffer = [0; 512];
            let mut turn = 0;
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let question = &buffer[..length];
                asked.lock().expect("no panic").push(shown(question));
                let mut answer = response(question, &turns[turn % turns.len()]);
                // Advance once per pair of queries: the query for IPv6 accompanies the one for IPv4.
                turn += usize::from(kind_of(question) == 1);
                if answers == Answers::OverTcp {
                    answer = question.to_vec();
                    answer[2] = 0x83;
                }
                _ = socket.send_to(&answer, from);
            }
        });
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut length = [0; 2];
                stream.read_exact(&mut length).expect("a length");
                let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut question).expect("a question");
                let answer = response(&question, &of_tcp[0]);
                let length = u16::try_from(answer.len()).expect("short").to_be_bytes();
                stream
                    .write_all(&[&length[..], &answer].concat())
                    .expect("the peer reads");
            }
        });
        Self { address, questions }
    }
}

fn kind_of(question: &[u8]) -> u16 {
    let [.., high, low, _, _] = question else {
        panic!("too short");
    };
    u16::from_be_bytes([*high, *low])
}

/// Formats the queried name, with spaces in place of the label lengths.
fn shown(question: &[u8]) -> String {
    let name = &question[12..question.len() - 5];
    let plain = |byte: &u8| {
        char::from(if *byte < 64 && *byte != b'-' {
            b' '
        } else {
            *byte
        })
    };
    name.iter().map(plain).collect::<String>().trim().to_owned()
}

fn response(question: &[u8], addresses: &[IpAddr]) -> Vec<u8> {
    let mut answer = question.to_vec();
    answer[2] = 0x81;
    for address in addresses {
        let (kind, data) = match address {
            IpAddr::V4(address) => (1_u16, address.octets().to_vec()),
            IpAddr::V6(address) => (28, address.octets().to_vec()),
        };
        if kind != kind_of(question) {
            continue;
        }
        answer[7] += 1;
        answer.extend([0xc0, 12]);
        answer.extend(kind.to_be_bytes());
        answer.extend([0, 1, 0, 0, 0, 0]);
        answer.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
        answer.extend(data);
    }
    answer
}
