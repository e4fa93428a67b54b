//! Executes the command line: starts the server, serves, and shuts down.

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
use crate::descriptors::SessionSlots;
use crate::failure::Failure;
use crate::http::{
    Bodies, Draining, Serving, TenantName, Tls, begin_log, log, reject_cross_site, until_cut_off,
};
use crate::metrics::Metrics;
use crate::sandboxes::Variant;
use crate::sessions::Sessions;
use crate::start_error::StartError;
use crate::tenant::{Tenant, TenantError};
use crate::traces::Traces;
use crate::{descriptors, e2b, fusion, host_memory, mcp, page, tokens, traces, v1};

/// The maximum number of threads for uses of sessions. Guests decide how long some of these take.
const MAX_SESSION_THREADS: usize = 4096;

/// The shared state of the handlers.
#[derive(Debug)]
pub struct App {
    /// Authenticates requests.
    pub authenticator: Authenticator,
    /// The state of the shutdown.
    pub draining: Arc<Draining>,
    /// Decides which runs, cells and uses of sessions start, wait or are rejected.
    pub admission: Admission,
    /// The maximum number of concurrent runs.
    pub jobs: usize,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Reads request bodies.
    pub bodies: Bodies,
    /// The open sessions.
    pub sessions: Sessions,
    /// The sandboxes of E2B's clients.
    pub e2b: e2b::Registry,
    /// The idle timeout of sessions.
    pub session_idle: Duration,
    /// The maximum number of bytes of files in a response.
    pub max_response: u64,
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
            start(&arguments, Transport::Stdio)
        }
        None => start(&arguments.serve, Transport::Http),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandfork server: {error}");
            // Like the `sandfork` command: 2 for a usage error, 125 for a failure of the host.
            ExitCode::from(error.exit_code())
        }
    }
}

fn token(tenant: &str) -> Result<(), StartError> {
    let (token, line) = tokens::generate(tenant)?;
    // Only the line goes to stdout, so that `>>` can append it to a token file.
    eprintln!("{token}");
    println!("{line}");
    Ok(())
}

/// The transport of the clients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Transport {
    Http,
    Stdio,
}

fn start(arguments: &ServeArguments, transport: Transport) -> Result<(), StartError> {
    let _log = match transport {
        Transport::Http => begin_log(),
        Transport::Stdio => None,
    };
    let mut config = Config::of(arguments)?;
    // The other half of the descriptors is for runs and sessions.
    let half = descriptors::raise()? / 2;
    config.http.connections = config.http.connections.min(half);
    let config = Arc::new(config);
    let tls = config.tls.as_ref().map(Tls::read).transpose()?;
    let bodies = Bodies::new(&config.http);
    let authenticator = Authenticator::new(&config, &bodies.budget)?;
    let tenants = match transport {
        Transport::Http => authenticator.all()?,
        // The client on standard input and output has no token.
        Transport::Stdio => vec![authenticator.tenant(tokens::DEFAULT_TENANT.into())?],
    };
    let processors = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let runtime = runtime(&config, &tenants, config.jobs.unwrap_or(processors))?;
    let hangup = match transport {
        Transport::Http => Some(hangup(&runtime)?),
        Transport::Stdio => None,
    };
    // Before the port is open, so that the first client finds warm interpreters, and errors in policies are found now.
    let mut capacity = usize::MAX;
    for tenant in &tenants {
        let sandbox = warm(tenant);
        let sandbox =
            sandbox.map_err(|cause| TenantError::Sandbox(Arc::clone(&tenant.name), cause))?;
        capacity = capacity.min(Capacity::of(&sandbox).runs.get());
    }
    if arguments.sandboxes.check {
        let count = tenants.len();
        println!(
            "ok: {count} tenant{} can run code",
            if count == 1 { "" } else { "s" }
        );
        return Ok(());
    }
    let jobs = NonZeroUsize::new(capacity.min(processors.get())).unwrap_or(NonZeroUsize::MIN);
    let jobs = config.jobs.unwrap_or(jobs);
    let metrics = Arc::new(Metrics::new());
    let admission = Admission::new(jobs, config.queue);
    host_memory::warn(&config, &tenants);
    let slots = SessionSlots::of(&config, half, &tenants, jobs.get());
    let app = Arc::new(App {
        authenticator,
        draining: Arc::default(),
        jobs: jobs.get(),
        sessions: Sessions::new(&metrics, &admission, slots),
        admission,
        e2b: e2b::Registry::default(),
        metrics,
        bodies,
        session_idle: config.session_idle,
        max_response: config.http.body.as_u64(),
    });
    if let Some(hangup) = hangup {
        runtime.spawn(reload_tokens_on_hangup(hangup, Arc::clone(&app)));
    }
    let collector = config.otlp.as_deref().filter(|_| !traces::are_disabled());
    let traces = collector.map(|collector| Traces::to(collector, runtime.handle()));
    let traces = traces
        .transpose()
        .map_err(|error| StartError::Usage(format!("trace collector: {error}")))?;
    runtime.spawn(run_housekeeping(Arc::clone(&app)));
    let served = match (transport, tenants.into_iter().next()) {
        (Transport::Stdio, Some(tenant)) => {
            let served = runtime.block_on(mcp::serve_stdio(app, tenant));
            served.map_err(StartError::Failed)
        }
        _ => runtime.block_on(listen(&config, tls, app)),
    };
    // Flushes the last spans, which needs the runtime.
    drop(traces);
    // Active runs are cancelled: the process ends, and every sandbox with it.
    runtime.shutdown_timeout(Duration::from_secs(5));
    served
}

/// Builds the runtime for at most `jobs` concurrent runs.
fn runtime(config: &Config, tenants: &[Arc<Tenant>], jobs: NonZeroUsize) -> io::Result<Runtime> {
    let sessions = tenants
        .iter()
        .map(|tenant| config.profile(&tenant.name).quota.sessions);
    let sessions = sessions.sum::<usize>().min(MAX_SESSION_THREADS);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // Each active or queued run and each use of a session needs a thread.
        .max_blocking_threads(
            jobs.get()
                .saturating_add(config.queue)
                .saturating_add(sessions + 64)
                // Tokio adds its worker threads.
                .min(usize::MAX / 2),
        )
        .build()
}

/// Handles SIGHUP from the start, even while interpreters are being warmed: an operator may reload the tokens before
/// the server is ready.
fn hangup(runtime: &Runtime) -> io::Result<Signal> {
    let _entered = runtime.enter();
    signal(SignalKind::hangup())
}

async fn run_housekeeping(app: Arc<App>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        app.sessions.meters.charge();
        app.sessions.close_idle();
        e2b::end_expired(&app);
    }
}

/// Builds a tenant's sandbox, and runs code in it.
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
    notify_systemd(NotifyState::Ready);
    let ended = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!(
            "shutting down: no new connections are accepted, and active requests may finish"
        );
        notify_systemd(NotifyState::Stopping);
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

/// Returns the socket that systemd passed (`sd_listen_fds(3)`), or binds a new one.
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

fn notify_systemd(state: NotifyState) {
    // Has no effect if systemd did not start this process.
    _ = sd_notify::notify(&[state]);
}

async fn reload_tokens_on_hangup(mut hangup: Signal, app: Arc<App>) {
    while hangup.recv().await.is_some() {
        let app = Arc::clone(&app);
        let reload = move || match app.authenticator.reload() {
            Ok(()) => tracing::info!("the tokens were reloaded"),
            Err(error) => {
                tracing::error!("the tokens could not be reloaded and stay unchanged: {error}");
            }
        };
        // Reading files blocks.
        _ = spawn_blocking(reload).await;
    }
}

fn router(app: Arc<App>, config: &Config) -> Router {
    let max_body = usize::try_from(config.http.body.as_u64()).unwrap_or(usize::MAX);
    let open = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/openapi.json", get(v1::openapi))
        .merge(page::routes())
        .method_not_allowed_fallback(method_not_allowed);
    let known = Router::new()
        .merge(v1::routes())
        .merge(mcp::routes(&app, max_body))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&app), identify));
    open.merge(known)
        .merge(fusion::routes(&app))
        .merge(e2b::routes(&app))
        .fallback(async || Failure::NotFound("there is no such path".to_owned()))
        .layer(from_fn_with_state(Arc::clone(&app), reject_cross_site))
        .layer(from_fn_with_state(Arc::clone(&app.draining), until_cut_off))
        .layer(from_fn_with_state(Arc::clone(&app.metrics), log))
        .with_state(app)
}

/// Handles a method that a path does not support.
pub async fn method_not_allowed(method: Method) -> Failure {
    Failure::Method(method)
}

/// Middleware that identifies the tenant of a request by its token.
///
/// # Errors
/// Returns an error if the token is not valid.
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
    let admitted = tenant.and_then(|tenant| {
        TenantName::set(&request, &tenant.name);
        Ok((tenant.slots.take(request.extensions())?, tenant))
    });
    match admitted {
        Ok((slot, tenant)) => {
            request.extensions_mut().insert(tenant.budget.clone());
            request.extensions_mut().insert(tenant);
            Ok(slot.until_sent(next.run(request).await))
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
    /// Returns how long a run or a cell with this time limit (by default the policy's) may wait for a client that does
    /// not read its output. The wait is limited because other requests wait for the turn.
    pub fn output_timeout(&self, tenant: &Tenant, wall: Option<Duration>) -> Duration {
        let longest = tenant.sandboxes.wall();
        self.bodies
            .pause
            .min(wall.map_or(longest, |wall| wall.min(longest)))
    }
}
