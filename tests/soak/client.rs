//! A client of `sandfork serve`: implements docs/protocol.md like the Python package.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use sandfork::Value;
use sandfork::internals::protocol::caller::{
    Cell, ClientRequest, FileOperation, FileRequest, Open, PolicyChoice, SandboxChoice, ToolTime,
};
use sandfork::internals::protocol::frame::encode_with;
use sandfork::internals::protocol::message::{AfterCell, Tools};
use sandfork::internals::protocol::{
    Decoder, Frame, FrameLimits, ToolAnswer, ToolDeclaration, VERSION,
};
use sandfork::session::ResultMode;
use sandfork_jail::sys::descriptors::{receive, send};
use serde_json::Value as Json;

use crate::answers::Reply;
use crate::library::LIMITS;

type Error = Box<dyn std::error::Error>;

/// How long a reply may take before it counts as lost, even on a busy machine.
const LOST: Duration = Duration::from_secs(240);

/// A `sandfork serve` process.
pub struct Server {
    process: Child,
    control: OwnedFd,
}

impl Server {
    /// Starts a server. No other program may be started meanwhile, because it would inherit the socket.
    pub fn start(program: &str) -> Result<Self, Error> {
        let (control, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::empty(),
        )?;
        nix::fcntl::fcntl(
            &control,
            nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC),
        )?;
        let process = Command::new(program)
            .args(["serve", "--control-fd", &theirs.as_raw_fd().to_string()])
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self { process, control })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Opens a connection.
    pub fn connect(&self) -> Result<Client, Error> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(LOST))?;
        send(self.control.as_fd(), b"c", &[theirs.as_fd()])?;
        Ok(Client {
            socket: ours,
            decoder: Decoder::new(FrameLimits::TO_CALLER),
            unread: Vec::new(),
            passed: VecDeque::new(),
            next_id: 0,
        })
    }

    /// Closes the server and waits for its end.
    pub fn close(self) -> Result<(), Error> {
        let Self {
            mut process,
            control,
        } = self;
        drop(control);
        let status = process.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`sandfork serve` ended with {status}").into())
        }
    }
}

/// One connection: a session or a batch.
pub struct Client {
    socket: UnixStream,
    decoder: Decoder,
    unread: Vec<u8>,
    passed: VecDeque<OwnedFd>,
    next_id: u64,
}

/// A message of the supervisor.
#[derive(Debug)]
pub struct Message {
    pub header: Json,
    pub payload: Vec<u8>,
}

impl Message {
    pub fn kind(&self) -> &str {
        self.header["kind"].as_str().unwrap_or_default()
    }

    fn expect(self, kind: &str) -> Result<Self, Error> {
        if self.kind() == kind {
            return Ok(self);
        }
        Err(format!("received {} instead of {kind}", self.header).into())
    }
}

impl Client {
    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Encodes a message.
    pub fn frame(ask: &ClientRequest, payload: &[u8]) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        encode_with(payload, &FrameLimits::FROM_CALLER, &mut bytes, |out| {
            Ok::<_, Error>(serde_json::to_writer(out, ask)?)
        })?;
        Ok(bytes)
    }

    pub fn ask(&mut self, ask: &ClientRequest, payload: &[u8]) -> Result<(), Error> {
        self.write(&Self::frame(ask, payload)?)
    }

    /// Writes raw bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.socket.write_all(bytes)?)
    }

    /// Reads the next message.
    pub fn receive(&mut self) -> Result<Message, Error> {
        loop {
            let mut unread = self.unread.as_slice();
            let frame = self.decoder.decode(&mut unread)?;
            self.unread = unread.to_vec();
            if let Some(Frame { header, payload }) = frame {
                return Ok(Message {
                    header: serde_json::from_slice(&header)?,
                    payload,
                });
            }
            let mut buffer = vec![0; 64 * 1024];
            let (length, fds) = receive(self.socket.as_fd(), &mut buffer)?;
            self.passed.extend(fds);
            if length == 0 {
                return Err("the supervisor closed the connection".into());
            }
            self.unread = buffer[..length].to_vec();
        }
    }

    /// Opens a session with these overrides besides the soak's.
    pub fn open(&mut self, policy: &str, more: &[String]) -> Result<(), Error> {
        let set = LIMITS.iter().map(|set| (*set).to_owned());
        let open = Open {
            version: VERSION,
            sandbox: SandboxChoice {
                policy: PolicyChoice::Name {
                    name: policy.to_owned(),
                    directory: None,
                    interpreter: None,
                },
                set: set.chain(more.iter().cloned()).collect(),
                environ: BTreeMap::new(),
                import_paths: Vec::new(),
            },
            tool_time: ToolTime::default(),
            snapshot: None,
            saved: None,
            stdin: false,
            ask_host: false,
        };
        self.ask(&ClientRequest::Open(Box::new(open)), &[])?;
        self.receive()?.expect("opened").map(drop)
    }

    /// Declares the tool `echo`.
    pub fn declare(&mut self) -> Result<(), Error> {
        let id = self.id();
        let echo = ToolDeclaration {
            name: "echo".to_owned(),
            doc: String::new(),
            signature: String::new(),
            ends_cell: false,
        };
        self.ask(
            &ClientRequest::Tools(Tools {
                id,
                tools: vec![echo],
            }),
            &[],
        )?;
        self.receive()?.expect("outcome").map(drop)
    }

    /// Sends a cell without waiting for it.
    pub fn begin(&mut self, source: &str, then: AfterCell) -> Result<(), Error> {
        let id = self.id();
        let cell = Cell {
            id,
            filename: "<soak>".to_owned(),
            argv: Vec::new(),
            last: ResultMode::Expression,
            then,
            stream: true,
            wall: None,
        };
        self.ask(&ClientRequest::Cell(cell), source.as_bytes())
    }

    /// Reads messages until one of this kind.
    pub fn receive_until(&mut self, kind: &str) -> Result<Message, Error> {
        loop {
            let message = self.receive()?;
            if message.kind() == kind {
                return Ok(message);
            }
            if message.kind() == "error" {
                return message.expect(kind);
            }
        }
    }

    /// Serves the tool calls of a running cell until its end.
    pub fn finish(&mut self) -> Result<Reply, Error> {
        let mut stdout = Vec::new();
        loop {
            let message = self.receive()?;
            match message.kind() {
                "output" if message.header["stream"] == "stdout" => stdout.extend(message.payload),
                "output" | "display" => {}
                "call" => self.answer(&message.header)?,
                _ => return parse_reply(&message.expect("outcome")?.header, &stdout),
            }
        }
    }

    fn answer(&mut self, call: &Json) -> Result<(), Error> {
        let answer = ToolAnswer {
            call: call["call"].as_u64().unwrap_or(0),
            value: call["args"][0].as_str().map(Value::from),
            error: None,
            blob: None,
        };
        self.ask(&ClientRequest::Return(answer), &[])
    }

    /// Runs a cell to its end.
    pub fn cell(&mut self, source: &str) -> Result<Reply, Error> {
        self.begin(source, AfterCell::Stay)?;
        self.finish()
    }

    /// Performs a file operation. Returns the descriptor if it opens a file.
    pub fn file(&mut self, path: &str, op: FileOperation) -> Result<Option<File>, Error> {
        let id = self.id();
        let path = path.to_owned();
        self.ask(&ClientRequest::File(FileRequest { id, path, op }), &[])?;
        self.receive()?.expect("file")?;
        Ok(self.passed.pop_front().map(File::from))
    }

    /// Closes the session and waits for the confirmation.
    pub fn close(mut self) -> Result<(), Error> {
        self.ask(&ClientRequest::Close, &[])?;
        self.receive_until("closed").map(drop)
    }
}

fn parse_reply(header: &Json, stdout: &[u8]) -> Result<Reply, Error> {
    let outcome = &header["outcome"];
    let status = outcome["status"].as_str();
    let text = |json: &Json| json.as_str().map(str::to_owned);
    Ok(Reply {
        status: status
            .ok_or_else(|| io::Error::other("no status"))?
            .to_owned(),
        stdout: String::from_utf8_lossy(stdout).into_owned(),
        value: text(&header["value"]),
        message: text(&outcome["error"]["message"]),
    })
}
