//! From the command line to a server, and to its end.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, Request, State};
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Parser;
use listenfd::ListenFd;
use sandfork::{Admission, Capacity};
use sd_notify::NotifyState;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;

use crate::args::{Arguments, Command, ServeArguments};
use crate::auth::Authenticator;
use crate::config::Config;
use crate::descriptors::SessionPlaces;
use crate::failure::Failure;
use crate::http::{
    Bodies, Draining, Serving, TenantName, Tls, begin_log, log, refuse_other_sites, until_cut_off,
};
use crate::metrics::Metrics;
use crate::sandboxes::Variant;
use crate::sessions::Sessions;
use crate::start_error::StartError;
use crate::tenant::{Tenant, TenantError};
use crate::traces::Traces;
use crate::{descriptors, e2b, fusion, host_memory, mcp, page, tokens, traces, v1};

/// The most threads for uses of sessions, whose guests decide how long some take.
const MOST_IN_SESSIONS: usize = 4096;

/// What handlers share.
#[derive(Debug)]
pub struct App {
    /// Knows the tenants, and whether clients need a token.
    pub authenticator: Authenticator,
    /// Whether the server ends.
    pub draining: Arc<Draining>,
    /// Which runs, cells and uses of sessions start, wait or are refused.
    pub admission: Admission,
    /// How many run at once.
    pub jobs: usize,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Reads bodies.
    pub bodies: Bodies,
    /// The open sessions.
    pub sessions: Sessions,
    /// The sandboxes of E2B's clients.
    pub e2b: e2b::Registry,
    /// The longest time without use of a session.
    pub session_idle: Duration,
    /// Bytes of files in an answer.
    pub longest_answer: u64,
}

impl FromRef<Arc<App>> for Bodies {
    fn from_ref(app: &Arc<App>) -> Self {
        app.bodies.clone()
    }
}

/// Executes the command line of this process.
pub fn command() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Some(Command::Token { tenant }) => token(&tenant),
        Some(Command::Mcp(sandboxes)) => {
            let arguments = ServeArguments {
                sandboxes: *sandboxes,
                ..ServeArguments::default()
            };
            start(&arguments, Over::Streams)
        }
        None => start(&arguments.serve, Over::Http),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandfork server: {error}");
            // As the command: the caller's mistake, or the host's.
            ExitCode::from(error.exit_code())
        }
    }
}

fn token(tenant: &str) -> Result<(), StartError> {
    let (token, line) = tokens::draw(tenant)?;
    // `>>` adds the line to a token file.
    eprintln!("{token}");
    println!("{line}");
    Ok(())
}

/// How clients reach the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Over {
    Http,
    Streams,
}

fn start(arguments: &ServeArguments, over: Over) -> Result<(), StartError> {
    let _log = match over {
        Over::Http => begin_log(),
        Over::Streams => None,
    };
    let mut config = Config::of(arguments)?;
    // Runs and sessions have the other half.
    let half = descriptors::raise()? / 2;
    config.http.connections = config.http.connections.min(half);
    let config = Arc::new(config);
    let tls = config.tls.as_ref().map(Tls::read).transpose()?;
    let bodies = Bodies::new(&config.http);
    let authenticator = Authenticator::new(&config, &bodies.budget)?;
    let tenants = match over {
        Over::Http => authenticator.all()?,
        // Its client has no token.
        Over::Streams => vec![authenticator.tenant(tokens::DEFAULT_TENANT.into())?],
    };
    let processors = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let runtime = runtime(&config, &tenants, config.jobs.unwrap_or(processors))?;
    let hangup = match over {
        Over::Http => Some(hangup(&runtime)?),
        Over::Streams => None,
    };
    // Before the port is open: the first client finds warm interpreters, and a mistake in a policy is found now.
    let mut most = usize::MAX;
    for tenant in &tenants {
        let sandbox = warm(tenant);
        let sandbox =
            sandbox.map_err(|cause| TenantError::Sandbox(Arc::clone(&tenant.name), cause))?;
        most = most.min(Capacity::of(&sandbox).runs.get());
    }
    if arguments.sandboxes.check {
        let count = tenants.len();
        println!(
            "ok: {count} tenant{} can run code",
            if count == 1 { "" } else { "s" }
        );
        return Ok(());
    }
    let jobs = NonZeroUsize::new(most.min(processors.get())).unwrap_or(NonZeroUsize::MIN);
    let jobs = config.jobs.unwrap_or(jobs);
    let metrics = Arc::new(Metrics::new());
    let admission = Admission::new(jobs, config.queue);
    host_memory::warn(&config, &tenants);
    let places = SessionPlaces::of(&config, half, &tenants, jobs.get());
    let app = Arc::new(App {
        authenticator,
        draining: Arc::default(),
        jobs: jobs.get(),
        sessions: Sessions::new(&metrics, &admission, places),
        admission,
        e2b: e2b::Registry::default(),
        metrics,
        bodies,
        session_idle: config.session_idle,
        longest_answer: config.http.body.as_u64(),
    });
    if let Some(hangup) = hangup {
        runtime.spawn(read_tokens_again(hangup, Arc::clone(&app)));
    }
    let collector = config.otlp.as_deref().filter(|_| !traces::are_disabled());
    let traces = collector.map(|collector| Traces::to(collector, runtime.handle()));
    let traces = traces
        .transpose()
        .map_err(|error| StartError::Usage(format!("the collector of traces: {error}")))?;
    runtime.spawn(close_what_is_over(Arc::clone(&app)));
    let served = match (over, tenants.into_iter().next()) {
        (Over::Streams, Some(tenant)) => {
            let served = runtime.block_on(mcp::serve_streams(app, tenant));
            served.map_err(StartError::Failed)
        }
        _ => runtime.block_on(listen(&config, tls, app)),
    };
    // The runtime sends the last spans.
    drop(traces);
    // What still runs is cancelled: the process ends, and each sandbox with it.
    runtime.shutdown_timeout(Duration::from_secs(5));
    served
}

/// What the server runs on, for at most so many runs at once.
fn runtime(config: &Config, tenants: &[Arc<Tenant>], jobs: NonZeroUsize) -> io::Result<Runtime> {
    let sessions = tenants
        .iter()
        .map(|tenant| config.profile(&tenant.name).quota.sessions);
    let sessions = sessions.sum::<usize>().min(MOST_IN_SESSIONS);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // Each run, each waiting one and each use of a session has a thread.
        .max_blocking_threads(
            jobs.get()
                .saturating_add(config.queue)
                .saturating_add(sessions + 64)
                // It adds its workers.
                .min(usize::MAX / 2),
        )
        .build()
}

/// Keeps SIGHUP from ending the server, also while it warms its interpreters: who has it read its tokens again may not know.
fn hangup(runtime: &Runtime) -> io::Result<Signal> {
    let _entered = runtime.enter();
    signal(SignalKind::hangup())
}

async fn close_what_is_over(app: Arc<App>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        app.sessions.meters.charge();
        app.sessions.close_idle();
        e2b::end_over(&app);
    }
}

/// Makes a tenant's sandbox, and runs something in it.
fn warm(tenant: &Tenant) -> Result<Arc<sandfork::Sandbox>, sandfork::Error> {
    let sandbox = tenant.sandbox(Variant::default())?;
    sandbox.run("1")?;
    Ok(sandbox)
}

async fn listen(config: &Config, tls: Option<Tls>, app: Arc<App>) -> Result<(), StartError> {
    let (listener, address) = listener(config).await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    println!("sandfork server: serving on {scheme}://{address}");
    tell_systemd(NotifyState::Ready);
    let ended = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("no connection is accepted any more, and what runs has time to end");
        tell_systemd(NotifyState::Stopping);
    };
    let serving = Serving {
        bounds: config.http,
        tls,
        metrics: Arc::clone(&app.metrics),
        drain: config.drain,
        draining: Arc::clone(&app.draining),
        router: router(app, config),
    };
    serving.serve(listener, ended).await;
    Ok(())
}

/// The socket that systemd has opened, or one of its own (`sd_listen_fds(3)`).
async fn listener(config: &Config) -> Result<(TcpListener, SocketAddr), StartError> {
    let unusable = |cause| StartError::Failed(format!("{}: {cause}", config.listen));
    let given = ListenFd::from_env()
        .take_tcp_listener(0)
        .map_err(unusable)?;
    let listener = match given {
        Some(given) => {
            given.set_nonblocking(true).map_err(unusable)?;
            TcpListener::from_std(given)
        }
        None => TcpListener::bind(config.listen).await,
    };
    let listener = listener.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    config.may_listen(address)?;
    Ok((listener, address))
}

fn tell_systemd(state: NotifyState) {
    // Nothing listens where systemd did not start it.
    _ = sd_notify::notify(&[state]);
}

async fn read_tokens_again(mut hangup: Signal, app: Arc<App>) {
    while hangup.recv().await.is_some() {
        let app = Arc::clone(&app);
        let reload = move || match app.authenticator.reload() {
            Ok(()) => tracing::info!("the tokens were read again"),
            Err(error) => tracing::error!("the tokens stay as they were: {error}"),
        };
        // It reads files.
        _ = spawn_blocking(reload).await;
    }
}

fn router(app: Arc<App>, config: &Config) -> Router {
    let longest = usize::try_from(config.http.body.as_u64()).unwrap_or(usize::MAX);
    let open = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/openapi.json", get(v1::openapi))
        .merge(page::routes())
        .method_not_allowed_fallback(other_method);
    let known = Router::new()
        .merge(v1::routes())
        .merge(mcp::routes(&app, longest))
        .method_not_allowed_fallback(other_method)
        .layer(from_fn_with_state(Arc::clone(&app), identify));
    open.merge(known)
        .merge(fusion::routes(&app))
        .merge(e2b::routes(&app))
        .fallback(async || Failure::NotFound("there is no such path".to_owned()))
        .layer(from_fn_with_state(Arc::clone(&app), refuse_other_sites))
        .layer(from_fn_with_state(Arc::clone(&app.draining), until_cut_off))
        .layer(from_fn_with_state(Arc::clone(&app.metrics), log))
        .with_state(app)
}

/// The answer to a method that a path does not have.
pub async fn other_method(method: Method) -> Failure {
    Failure::Method(method)
}

/// Finds the tenant of a request by its token. A request without one goes no further.
///
/// # Errors
/// If the token is not accepted.
pub async fn identify(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let tenant = if app.draining.has_begun() {
        Err(Failure::Draining)
    } else {
        app.authenticator.tenant_of(request.headers())
    };
    let placed = tenant.and_then(|tenant| {
        TenantName::tell(&request, &tenant.name);
        Ok((tenant.places.take(request.extensions())?, tenant))
    });
    match placed {
        Ok((place, tenant)) => {
            request.extensions_mut().insert(tenant.budget.clone());
            request.extensions_mut().insert(tenant);
            Ok(place.until_sent(next.run(request).await))
        }
        Err(failure) => {
            app.bodies.discard(request.into_body()).await;
            Err(failure)
        }
    }
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    if app.draining.has_begun() {
        return Failure::Draining.into_response();
    }
    "ready\n".into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], app.metrics.text()).into_response()
}

impl App {
    /// How long a run or a cell of this time, or of the policy's, waits for a client that takes no output. It has a turn that
    /// others wait for.
    pub fn patience(&self, tenant: &Tenant, wall: Option<Duration>) -> Duration {
        let longest = tenant.sandboxes.wall();
        self.bodies
            .pause
            .min(wall.map_or(longest, |wall| wall.min(longest)))
    }
}
