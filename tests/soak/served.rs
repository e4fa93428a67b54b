//! The behaviour of the clients of `sandfork serve`, including those that disconnect.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use sandfork::internals::protocol::VERSION;
use sandfork::internals::protocol::caller::{
    ClientRequest, FileOperation, OpenBatch, Order, PolicyChoice, SandboxChoice, TaskHeader,
};
use sandfork::internals::protocol::message::AfterCell;

use crate::answers::Answers;
use crate::client::{Client, Server};
use crate::kills::{Disturbed, Kills};
use crate::library::LIMITS;
use crate::mix::{Numbers, Plot};
use crate::repertoire::{Fit, Guest};

type Done = Result<(), Box<dyn std::error::Error>>;

/// The number of rarely used policies: more than a supervisor keeps sandboxes for.
const OWN_POLICIES: u32 = 8;

/// The idle limit of the session of a client that comes back.
const IDLE: &str = "session.idle=50ms";
const AWAY: Duration = Duration::from_millis(150);

const TASKS: u64 = 4;

const WAITS: &str = "import time\nprint('on', flush=True)\ntime.sleep(600)";

/// Runs one client.
pub fn play(
    server: &Server,
    plot: Plot,
    numbers: &mut Numbers,
    token: &str,
    answers: &Answers,
    kills: &Kills,
) {
    let policy = if numbers.below(4) == 0 {
        "strict"
    } else {
        "standard"
    };
    let scene = Scene {
        server,
        policy,
        guest: numbers.guest(Fit::Anywhere),
        token,
        answers,
    };
    let own = numbers.below(OWN_POLICIES);
    let (done, disturbed) = kills.observe(|| scene.play(plot, own));
    match (done, disturbed) {
        (Ok(()), _) => {}
        (Err(_), Disturbed::Perhaps) => answers.count("lost with a killed zygote"),
        (Err(error), Disturbed::No) => {
            answers.keep(Err(format!(
                "{plot:?} with guest `{}`: {error}",
                scene.guest.name
            )));
        }
    }
}

/// Opens the sandboxes that exist after each policy was used recently.
pub fn gather(server: &Server) -> Done {
    for own in 0..OWN_POLICIES {
        opened(server, "standard", &[own_policy(own)])?.close()?;
    }
    Ok(())
}

/// Brings the pool to the size that it has under light load.
pub fn calm(server: &Server) -> Done {
    for policy in ["strict", "standard"] {
        opened(server, policy, &[])?.close()?;
        let mut client = server.connect()?;
        client.ask(&map(policy), &[])?;
        client.receive_until("mapping")?;
        task(&mut client, 1, "calm")?;
        client.receive_until("done")?;
        client.ask(&ClientRequest::End, &[])?;
        client.receive_until("closed")?;
    }
    Ok(())
}

struct Scene<'a> {
    server: &'a Server,
    policy: &'static str,
    guest: &'static Guest,
    token: &'a str,
    answers: &'a Answers,
}

impl Scene<'_> {
    fn play(&self, plot: Plot, own: u32) -> Done {
        match plot {
            Plot::Polite => self.polite(),
            Plot::Once => self.once(),
            Plot::Restart => self.restart(),
            Plot::Interrupt => self.interrupt(),
            Plot::OwnPolicy => self.value(self.open(&[own_policy(own)])?)?.close(),
            Plot::Abandons => self.abandons(),
            Plot::Batch => self.batch(TASKS),
            Plot::VanishesInBatch => self.batch(1),
            Plot::VanishesIdle => self.value(self.open(&[])?).map(drop),
            Plot::VanishesInCell => {
                let mut client = self.open(&[])?;
                client.begin(WAITS, AfterCell::Stay)?;
                client.receive_until("output").map(drop)
            }
            Plot::VanishesInCall => {
                let mut client = self.open(&[])?;
                client.declare()?;
                client.begin("echo('nobody answers')", AfterCell::Stay)?;
                client.receive_until("call").map(drop)
            }
            Plot::VanishesInFrame => {
                let mut client = self.open(&[])?;
                let whole = Client::frame(&ClientRequest::Interrupt, &[0; 100])?;
                client.write(&whole[..whole.len() / 2])
            }
            Plot::Garbage => {
                let mut client = self.open(&[])?;
                client.write(&[0xff; 99])?;
                let message = client.receive()?;
                ensure(message.header["error"] == "protocol", &message)
            }
        }
    }

    fn open(&self, more: &[String]) -> Result<Client, Box<dyn std::error::Error>> {
        let client = opened(self.server, self.policy, more)?;
        self.answers.count_run();
        Ok(client)
    }

    /// Runs a cell that returns the token.
    fn value(&self, mut client: Client) -> Result<Client, Box<dyn std::error::Error>> {
        let reply = client.cell(&format!("{:?}", self.token))?;
        self.answers.count(&reply.status);
        reply.is_value(self.token)?;
        Ok(client)
    }

    fn polite(&self) -> Done {
        let mut client = self.open(&[])?;
        client.declare()?;
        let reply = client.cell(&format!("echo({:?})", self.token))?;
        self.answers.count(&reply.status);
        reply.is_value(self.token)?;
        let writes = FileOperation::OpenWrite { append: false };
        let file = client.file("given.txt", writes)?;
        file.ok_or("no descriptor")?
            .write_all(self.token.as_bytes())?;
        let file = client.file("given.txt", FileOperation::OpenRead)?;
        let mut text = String::new();
        file.ok_or("no descriptor")?.read_to_string(&mut text)?;
        ensure(text == self.token, &text)?;
        let reply = client.cell(&self.guest.source(self.token))?;
        self.answers.count(&reply.status);
        reply.judge(self.guest, self.token)?;
        client.close()
    }

    fn once(&self) -> Done {
        let mut client = self.open(&[])?;
        client.begin(&self.guest.source(self.token), AfterCell::End)?;
        let reply = client.finish()?;
        self.answers.count(&reply.status);
        reply.judge(self.guest, self.token)?;
        client.close()
    }

    fn restart(&self) -> Done {
        let mut client = self.value(self.open(&[])?)?;
        let id = client.id();
        client.ask(&ClientRequest::Restart { id }, &[])?;
        client.receive_until("opened")?;
        self.answers.count_run();
        self.value(client)?.close()
    }

    fn interrupt(&self) -> Done {
        let mut client = self.open(&[])?;
        client.begin(WAITS, AfterCell::Stay)?;
        client.receive_until("output")?;
        client.ask(&ClientRequest::Interrupt, &[])?;
        let reply = client.finish()?;
        self.answers.count(&reply.status);
        reply.has_ended(&["interrupted"])?;
        client.close()
    }

    fn abandons(&self) -> Done {
        let mut client = self.open(&[IDLE.to_owned()])?;
        thread::sleep(AWAY);
        client.begin("0", AfterCell::Stay)?;
        // The scheduler determines whether the end has been noticed yet.
        let message = client.receive()?;
        let ended = message.header["error"] == "session-ended";
        ensure(ended || message.kind() == "outcome", &message)
    }

    /// Runs a batch and reads this many of its results.
    fn batch(&self, results: u64) -> Done {
        let mut client = self.server.connect()?;
        client.ask(&map(self.policy), &[])?;
        client.receive_until("mapping")?;
        for id in 1..=TASKS {
            task(&mut client, id, self.token)?;
        }
        for _ in 0..results {
            let message = client.receive_until("done")?;
            self.answers.count_run();
            self.answers.count(
                message.header["outcome"]["status"]
                    .as_str()
                    .unwrap_or_default(),
            );
            let value = format!("{} {}", self.token, message.header["id"]);
            ensure(message.header["value"] == value.as_str(), &message)?;
        }
        if results == TASKS {
            client.ask(&ClientRequest::End, &[])?;
            client.receive_until("closed")?;
        }
        Ok(())
    }
}

fn opened(
    server: &Server,
    policy: &str,
    more: &[String],
) -> Result<Client, Box<dyn std::error::Error>> {
    let mut client = server.connect()?;
    client.open(policy, more)?;
    Ok(client)
}

/// Returns an override that makes another policy: a wall limit that no guest reaches.
fn own_policy(number: u32) -> String {
    format!("limits.wall={}m", 6 + number)
}

fn map(policy: &str) -> ClientRequest {
    ClientRequest::Map(Box::new(OpenBatch {
        version: VERSION,
        sandbox: SandboxChoice {
            policy: PolicyChoice::Name {
                name: policy.to_owned(),
                directory: None,
                interpreter: None,
            },
            set: LIMITS.iter().map(|set| (*set).to_owned()).collect(),
            environ: std::collections::BTreeMap::new(),
            import_paths: Vec::new(),
        },
        jobs: None,
        order: Order::AsFinished,
    }))
}

/// Sends a task that returns its token and its number.
fn task(client: &mut Client, id: u64, token: &str) -> Done {
    let code = format!("'{token} {id}'");
    let line = serde_json::json!({ "id": id, "code": code }).to_string();
    let header = TaskHeader { id, filename: None };
    client.ask(&ClientRequest::Task(header), line.as_bytes())
}

fn ensure(holds: bool, observed: &impl std::fmt::Debug) -> Done {
    if holds {
        return Ok(());
    }
    Err(format!("unexpected: {observed:?}").into())
}
