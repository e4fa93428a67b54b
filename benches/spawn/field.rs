//! Selects the contestants that can run on this machine, with the reasons why others are left out.

use anyhow::Result;

use crate::Options;
use crate::contestant::{BareForks, Contestant, InFlight, Ready, Sandboxes};
use crate::ground::Ground;
use crate::peers;
use crate::processes::{self, NotInstalled};
use crate::session::{PythonClient, Repeats, RustSessions};
use crate::subject::{Peer, Preload, Subject};

/// All contestants.
#[derive(Default)]
pub struct Field {
    /// Each contestant, with the number of rounds in one of which it takes a turn.
    pub entries: Vec<(usize, Box<dyn Contestant>)>,
    /// One line for each contestant that is left out.
    pub left_out: Vec<String>,
}

/// Contestants whose imports take hundreds of milliseconds take one turn in this many rounds.
const SELDOM: usize = 10;

/// The repetitions in one turn of contestants that wait for their zygote or their pool.
const FEW: usize = 4;

impl Field {
    pub fn assemble(ground: &Ground, options: &Options) -> Result<Self> {
        let mut field = Self::default();
        let python = ground.python.as_path();
        // Enough for the tails, over all rounds.
        let many = options.full_or_quick(16, 10);
        let session = Repeats {
            cells: many,
            sessions: FEW,
        };
        let bare = Preload::Nothing;
        field.enter(processes::python(python), 1)?;
        field.enter(Sandboxes::new(python, bare, many), 1)?;
        field.enter(BareForks::new(python, bare, many), 1)?;
        field.enter(Ready::new(python, FEW), 1)?;
        field.enter(InFlight::new(python), SELDOM)?;
        field.enter_if_able(&Subject::ColdRun.to_string(), processes::cold_run(python));
        field.enter(RustSessions::new(python, session), 1)?;
        field.enter_if_able("the Python client", PythonClient::new(python, session));
        field.enter_preloaded(ground, options)?;
        field.enter_peers(ground);
        Ok(field)
    }

    fn enter_preloaded(&mut self, ground: &Ground, options: &Options) -> Result<()> {
        let all = [Preload::Numpy, Preload::NumpyAndPandas];
        let preloads = options.full_or_quick(&all[..], &all[1..]);
        for &preload in preloads {
            let Some(python) = ground.python_with(preload.modules()) else {
                let modules = preload.modules().join(", ");
                self.left_out.push(format!(
                    "{modules} preloaded: this interpreter has them neither itself nor in an environment; \
                     `cargo xtask bench` makes one"
                ));
                continue;
            };
            self.enter(Sandboxes::new(&python, preload, FEW), 1)?;
            self.enter(BareForks::new(&python, preload, FEW), 1)?;
            self.enter(processes::python_with(&python, preload), SELDOM)?;
        }
        Ok(())
    }

    fn enter_peers(&mut self, ground: &Ground) {
        let mut absent = Vec::new();
        for peer in Peer::ALL {
            match peers::contestant(peer, ground) {
                Ok(entry) => self.entries.push(entry),
                Err(why) if why.is::<NotInstalled>() => absent.push(peer.name()),
                Err(why) => self
                    .left_out
                    .push(format!("{}: not usable: {why:#}", peer.name())),
            }
        }
        if !absent.is_empty() {
            self.left_out
                .push(format!("not installed: {}", absent.join(", ")));
        }
    }

    fn enter_if_able(&mut self, name: &str, contestant: Result<impl Contestant + 'static>) {
        if let Err(why) = self.enter(contestant, 1) {
            self.left_out.push(format!("{name}: {why}"));
        }
    }

    fn enter(&mut self, contestant: Result<impl Contestant + 'static>, every: usize) -> Result<()> {
        self.entries.push((every, Box::new(contestant?)));
        Ok(())
    }
}
