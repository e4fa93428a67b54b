//! A fake worker and a fake caller, which need no kernel.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::*;
use crate::outcome::{CpuRule, Level, LimitName};
use crate::protocol::Frame;
use crate::protocol::caller::{
    Cell, CellOutcome, ClientEvent, ClientRequest, FileRequest, SessionState, ToolTime,
};
use crate::protocol::message::{CopyPoint, ResultMode};
use crate::supervisor::egress::WorkerNetwork;
use crate::supervisor::files::FileError;
use crate::supervisor::link::LinkError;
use crate::supervisor::refused_calls::RefusedCalls;
use crate::supervisor::run::{AskHost, Files, Measured};
use crate::supervisor::session_loop::files::FileResult;
use crate::supervisor::session_loop::{Payload, Refusal};
use crate::supervisor::snapshot::{Image, Medium, SnapshotRefusal};
use sandfork_jail::restore::Step;

pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A worker without a process.
pub struct FakeWorker {
    now: Instant,
    pub sent: usize,
    pub interrupts: usize,
    pub reminders: usize,
    pub kills: usize,
    /// Whether the main process is exiting.
    pub is_ending: bool,
    /// The exceeded limit that the next check finds.
    pub exceeded: Option<Stop>,
    pub drained: Drained,
    /// The cgroup's count of OOM kills.
    pub oom_kills: u64,
    /// The CPU time that the worker may use from now on.
    pub cpu: Duration,
    /// Why the worker cannot be copied.
    pub refusal: Option<SnapshotRefusal>,
    /// Whether the guest is running code.
    pub is_busy: bool,
    /// Whether programs of the caller run.
    pub runs_programs: bool,
    /// The number of passed files that were taken.
    pub taken: usize,
    /// The number of passed files that were checked and accepted.
    pub accepted: usize,
    /// The cgroup's count of CPU time, microseconds.
    pub cpu_us: Option<u64>,
    /// The measurements without a cgroup.
    pub measured: Measured,
}

impl WorkerIo for FakeWorker {
    fn send(&mut self, _: Vec<u8>, _: Option<OwnedFd>) {
        self.sent += 1;
    }

    fn take_passed(&mut self) -> Result<OwnedFd, LinkError> {
        self.taken += 1;
        File::open("/dev/null").map_or(Err(LinkError::Missing), |file| Ok(file.into()))
    }

    fn accept(&mut self, passed: OwnedFd, _: u64) -> Result<OwnedFd, String> {
        self.accepted += 1;
        Ok(passed)
    }

    fn interrupt(&mut self) {
        self.interrupts += 1;
    }

    fn remind_of_interrupt(&mut self) {
        self.reminders += 1;
    }

    fn kill(&mut self) {
        self.kills += 1;
    }

    fn ends_by(&self) -> Instant {
        self.now + ms(900)
    }

    fn is_ending(&self) -> bool {
        self.is_ending
    }

    fn counts(&mut self) -> Counts {
        Counts {
            oom_kills: self.oom_kills,
            cpu_us: self.cpu_us,
            ..Counts::default()
        }
    }

    fn has_lost_cgroup(&self, _: &Counts) -> bool {
        false
    }

    fn restart_watch(&mut self, _: Pace, _: Instant, _: Option<u64>, allowed: Duration) {
        self.cpu = allowed;
    }

    fn check_limits(&mut self, _: Instant) -> Option<Stop> {
        self.exceeded.take()
    }

    fn next_check(&self) -> Instant {
        self.now + ms(20)
    }

    fn measured(&self) -> Measured {
        self.measured
    }

    fn files(&self) -> Files {
        Files::default()
    }

    fn perform_file_request(&mut self, _: &FileRequest) -> Result<FileResult, FileError> {
        Err(FileError::Gone)
    }

    fn note_closed_files(&mut self) {}

    fn require_copyable(&mut self, _: Medium) -> Result<(), SnapshotRefusal> {
        self.refusal.clone().map_or(Ok(()), Err)
    }

    fn is_asleep(&self) -> bool {
        !self.is_busy
    }

    fn capture(&mut self, _: CopyPoint, _: u64, _: Medium) -> Result<Image, SnapshotRefusal> {
        Err(SnapshotRefusal::Changed)
    }

    fn is_used(&self) -> bool {
        self.runs_programs
    }

    fn defer_programs(&mut self) -> bool {
        true
    }

    fn send_starter_socket(&mut self) {}

    fn runs_programs(&self) -> bool {
        self.runs_programs
    }

    fn keep(&mut self, _: Arc<Image>) -> u64 {
        0
    }

    fn restore_order(&self, _: &Image) -> Result<Vec<u8>, SnapshotRefusal> {
        Err(SnapshotRefusal::Changed)
    }

    fn plan(
        &self,
        _: &Image,
        _: &CopyPoint,
        _: u64,
    ) -> Result<(OwnedFd, Vec<Step>), SnapshotRefusal> {
        Err(SnapshotRefusal::Changed)
    }

    fn network(&mut self) -> Option<&mut WorkerNetwork> {
        None
    }

    fn refused_calls(&mut self) -> RefusedCalls {
        RefusedCalls::default()
    }

    fn drain(&mut self, _: Stream, _: &mut dyn FnMut(&[u8])) -> Drained {
        self.drained
    }

    fn captured(&self, _: Stream) -> &[u8] {
        &[]
    }

    fn take_output(&mut self) -> (Vec<u8>, Vec<u8>, u64) {
        (Vec::new(), Vec::new(), 0)
    }
}

/// A caller that records what it receives.
#[derive(Default)]
pub struct FakeCaller {
    requests: Vec<ClientRequest>,
    pub events: Vec<ClientEvent>,
    pub refusals: Vec<(Option<u64>, String)>,
    pub between_cells: Duration,
}

impl Caller for FakeCaller {
    fn recv(&mut self) -> CallerEvent {
        let request = |request| CallerEvent::Request(request, Payload::default());
        self.requests.pop().map_or(CallerEvent::Nothing, request)
    }

    fn answer(&mut self, answer: ClientEvent, _: Payload) {
        self.events.push(answer);
    }

    fn refuse(&mut self, id: Option<u64>, refusal: Refusal) {
        self.refusals.push((id, refusal.to_string()));
    }

    fn takes_count(&mut self) -> bool {
        true
    }

    fn note_between_cells(&mut self, used: Duration) {
        self.between_cells += used;
    }
}

impl FakeCaller {
    /// Returns the status and the session's state of each outcome so far.
    pub fn outcomes(&self) -> Vec<(&'static str, SessionState)> {
        self.all_outcomes()
            .map(|outcome| (outcome.outcome.0.status().as_str(), outcome.session))
            .collect()
    }

    /// Returns the peak memory of each outcome so far.
    pub fn peaks(&self) -> Vec<Option<u64>> {
        self.all_outcomes()
            .map(|outcome| outcome.outcome.0.usage().peak_memory_bytes)
            .collect()
    }

    fn all_outcomes(&self) -> impl Iterator<Item = &CellOutcome> {
        self.events.iter().filter_map(|event| match event {
            ClientEvent::Outcome(outcome) => Some(&**outcome),
            _ => None,
        })
    }
}

fn limits() -> Limits {
    Limits::new(|name| match name {
        LimitName::Wall => 30_000,
        LimitName::Cpu => 10_000,
        LimitName::Cores => 2000,
        _ => *name.spec().range.end(),
    })
}

pub const SESSION: Purpose = Purpose::Session(SessionTerms {
    idle: Some(Duration::from_secs(60)),
    age: Some(Duration::from_secs(600)),
    pause_after: Some(Duration::from_secs(30)),
    cpu_rule: CpuRule::FollowsWall,
    tool_time: ToolTime::AtMost(Duration::ZERO),
});

/// The state of a worker, its caller, and the current time.
pub struct Scene<'a> {
    pub life: WorkerLife<'a, FakeWorker>,
    pub caller: FakeCaller,
    pub now: Instant,
}

pub fn in_scene(purpose: Purpose, act: impl FnOnce(&mut Scene)) {
    let policy = PolicyIdentity {
        name: "standard".into(),
        sha256: String::new(),
    };
    let enforced = Enforced {
        level: Level::Full,
        layers: Vec::new(),
    };
    let grants = crate::plan::sample_grants("");
    let now = Instant::now();
    let worker = FakeWorker {
        now,
        sent: 0,
        interrupts: 0,
        reminders: 0,
        kills: 0,
        is_ending: false,
        exceeded: None,
        drained: Drained::WithinCap,
        oom_kills: 0,
        cpu: Duration::ZERO,
        refusal: None,
        is_busy: false,
        runs_programs: false,
        taken: 0,
        accepted: 0,
        cpu_us: None,
        measured: Measured::default(),
    };
    let terms = LifeTerms {
        purpose,
        limits: limits(),
        policy: &policy,
        enforced: &enforced,
        grants: &grants,
        own: None,
        ask_host: AskHost::No,
        memory: ProcessMemory::Mapped(0),
    };
    let mut scene = Scene {
        life: WorkerLife::new(&terms, worker, now),
        caller: FakeCaller::default(),
        now,
    };
    match purpose {
        Purpose::Session(_) => scene.life.greet(now).unwrap(),
        Purpose::Run(_) => scene.life.start_run(Vec::new(), now),
    }
    scene.worker_sends(r#"{"kind":"ready","version":2}"#);
    act(&mut scene);
}

impl Scene<'_> {
    pub fn worker_sends(&mut self, header: &str) {
        let frame = Frame {
            header: header.as_bytes().to_vec(),
            payload: Vec::new(),
        };
        self.life.on_frame(frame, self.now, &mut self.caller);
    }

    pub fn caller_sends(&mut self, request: ClientRequest) -> Option<SessionExit> {
        self.caller.requests.push(request);
        self.life.on_caller(self.now, &mut self.caller)
    }

    pub fn cell(&mut self, id: u64) {
        self.cell_for(id, None);
    }

    /// Requests a cell with its own wall limit, in seconds.
    pub fn cell_for(&mut self, id: u64, wall: Option<f64>) {
        let left = self.caller_sends(ClientRequest::Cell(Cell {
            id,
            filename: "<cell>".into(),
            argv: Vec::new(),
            last: ResultMode::default(),
            then: AfterCell::Stay,
            stream: false,
            wall,
        }));
        assert!(left.is_none());
    }

    pub fn advance(&mut self, time: Duration) {
        self.now += time;
        self.life.on_time(self.now);
    }

    pub fn end(&mut self) -> SessionExit {
        self.life.on_end(self.now, &mut self.caller)
    }
}

pub fn code(status: i32) -> Exit {
    Exit {
        status: ExitStatus::Code(status),
        cpu_us: 0,
        max_rss_kib: 0,
    }
}

pub fn reason(left: SessionExit) -> String {
    match left {
        SessionExit::Ended(why) => why,
        other => panic!("{other:?}"),
    }
}
