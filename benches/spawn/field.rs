//! The contestants on this machine, and the reasons why others are left out.

use crate::contestant::{BareForks, Contestant, Error, InFlight, Ready, Sandboxes};
use crate::ground::Ground;
use crate::options::{Extent, Options};
use crate::peers;
use crate::processes::{self, NotInstalled};
use crate::session::{PythonClient, Repeats, RustSessions};
use crate::subject::{Peer, Preload, Subject};

/// All contestants.
#[derive(Default)]
pub struct Field {
    pub entries: Vec<Entry>,
    /// One line for each contestant that is left out.
    pub left_out: Vec<String>,
}

/// A contestant and how often it takes a turn.
pub struct Entry {
    pub every: usize,
    pub contestant: Box<dyn Contestant>,
}

/// Imports of hundreds of milliseconds take one turn in this many rounds.
const SELDOM: usize = 10;

/// How many repetitions the cheap contestants do in one turn.
struct Turns {
    /// Enough, over all rounds, for their reported tail.
    fresh: usize,
    /// Contestants that wait for their zygote or their pool.
    other: usize,
    session: Repeats,
}

impl Turns {
    const fn of(extent: Extent) -> Self {
        let fresh = match extent {
            Extent::Full => 16,
            Extent::Quick => 10,
        };
        Self {
            fresh,
            other: 4,
            session: Repeats {
                cells: fresh,
                sessions: 4,
            },
        }
    }
}

impl Field {
    pub fn assemble(ground: &Ground, options: &Options) -> Result<Self, Error> {
        let mut field = Self::default();
        let python = ground.python.as_path();
        let turns = Turns::of(options.extent);
        let bare = Preload::Nothing;
        field.enter(processes::python(python), 1)?;
        field.enter(Sandboxes::new(python, bare, turns.fresh), 1)?;
        field.enter(BareForks::new(python, bare, turns.fresh), 1)?;
        field.enter(Ready::new(python, turns.other), 1)?;
        field.enter(InFlight::new(python), SELDOM)?;
        field.enter_if_able(&Subject::ColdRun.to_string(), processes::cold_run(python));
        field.enter(RustSessions::new(python, turns.session), 1)?;
        let client = PythonClient::new(python, turns.session);
        field.enter_if_able("the Python client", client);
        field.enter_preloaded(ground, options, &turns)?;
        field.enter_peers(ground);
        Ok(field)
    }

    fn enter_preloaded(
        &mut self,
        ground: &Ground,
        options: &Options,
        turns: &Turns,
    ) -> Result<(), Error> {
        let preloads: &[Preload] = match options.extent {
            Extent::Full => &[Preload::Numpy, Preload::NumpyAndPandas],
            Extent::Quick => &[Preload::NumpyAndPandas],
        };
        for &preload in preloads {
            let Some(python) = ground.python_with(preload.modules()) else {
                let modules = preload.modules().join(", ");
                self.left_out.push(format!(
                    "{modules} preloaded: this interpreter has them neither itself nor in an environment; \
                     `cargo xtask bench` makes one"
                ));
                continue;
            };
            self.enter(Sandboxes::new(&python, preload, turns.other), 1)?;
            self.enter(BareForks::new(&python, preload, turns.other), 1)?;
            self.enter(processes::python_with(&python, preload), SELDOM)?;
        }
        Ok(())
    }

    fn enter_peers(&mut self, ground: &Ground) {
        let mut absent = Vec::new();
        for peer in Peer::ALL {
            match peers::contestant(peer, ground) {
                Ok((contestant, every)) => self.entries.push(Entry { every, contestant }),
                Err(why) if why.is::<NotInstalled>() => absent.push(peer.name()),
                Err(why) => {
                    let name = peer.name();
                    self.left_out.push(format!("{name}: not usable: {why}"));
                }
            }
        }
        if !absent.is_empty() {
            let names = absent.join(", ");
            self.left_out.push(format!("not installed: {names}"));
        }
    }

    fn enter_if_able(&mut self, name: &str, contestant: Result<impl Contestant + 'static, Error>) {
        if let Err(why) = self.enter(contestant, 1) {
            self.left_out.push(format!("{name}: {why}"));
        }
    }

    fn enter(
        &mut self,
        contestant: Result<impl Contestant + 'static, Error>,
        every: usize,
    ) -> Result<(), Error> {
        let contestant = Box::new(contestant?);
        self.entries.push(Entry { every, contestant });
        Ok(())
    }
}
