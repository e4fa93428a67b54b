//! The protocol of E2B, for the packages `e2b` and `e2b-code-interpreter`.
//!
//! The *control plane* creates and ends sandboxes, and requires a tenant's token. The *data plane* accesses a single
//! sandbox: its code interpreter (port 49999 at E2B) and its daemon `envd` (port 49983). Both are served on the
//! server's only port. A data-plane request names its sandbox in headers and presents the sandbox's token, which the
//! control plane has issued.

mod access;
mod commands;
mod config;
mod context;
mod control;
mod filesystem;
mod interpreter;
mod lists;
mod pausing;
mod process;
mod registry;
mod rpc;
mod snapshots;
mod transfer;
mod watch;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post, put};
use axum::{Extension, Json, Router};
use sandfork::GuestPath;
use serde_json::{Value, json};

pub use self::pausing::end_expired;
pub use self::registry::Registry;
use self::registry::Sandbox;
use crate::failure::{Failure, render_failures};
use crate::server::{App, identify, method_not_allowed};

/// The sandbox of a data-plane request.
type OfSandbox = Extension<Arc<Sandbox>>;
type Answer = Result<Json<Value>, Failure>;

/// The version of `envd` whose protocol is implemented.
const ENVD_VERSION: &str = "0.5.2";

/// Returns the routes, with the middleware that identifies the tenant or the sandbox of a request.
pub fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let control = control_routes().method_not_allowed_fallback(method_not_allowed);
    let control =
        render_failures(failed, control).layer(from_fn_with_state(Arc::clone(app), identify));
    let data = data_routes().method_not_allowed_fallback(method_not_allowed);
    let data =
        render_failures(failed, data).layer(from_fn_with_state(Arc::clone(app), access::authorize));
    // Failures of the middleware itself are rendered like those of handlers.
    render_failures(failed, control.merge(data))
}

/// Returns the routes of the control plane.
fn control_routes() -> Router<Arc<App>> {
    let mut routes = Router::new()
        .route("/snapshots", get(snapshots::list))
        .route("/templates/{id}", delete(snapshots::remove));
    for version in ["", "/v2"] {
        let path = |below: &str| format!("{version}/sandboxes{below}");
        routes = routes
            .route(&path(""), post(control::create).get(lists::list))
            .route(&path("/{id}"), get(control::show).delete(control::remove))
            .route(&path("/{id}/timeout"), post(control::set_timeout))
            .route(&path("/{id}/connect"), post(pausing::connect))
            .route(&path("/{id}/fork"), post(snapshots::fork))
            .route(&path("/{id}/snapshots"), post(snapshots::create))
            .route(&path("/{id}/metrics"), get(control::metrics))
            .route(&path("/{id}/pause"), post(pausing::pause))
            .route(&path("/{id}/network"), put(control::network));
    }
    routes
}

/// Returns the routes of the data plane.
fn data_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/health", get(async || StatusCode::NO_CONTENT))
        .route("/execute", post(interpreter::execute))
        .route(
            "/contexts",
            post(interpreter::create).get(interpreter::list),
        )
        .route("/contexts/{id}", delete(interpreter::remove))
        .route("/contexts/{id}/restart", post(interpreter::restart))
        .route("/files", get(transfer::download).post(transfer::upload))
        .merge(render_failures(rpc::failed, unary_calls()))
        .merge(render_failures(rpc::stream_failed, streaming_calls()))
}

/// Returns the routes of unary calls.
fn unary_calls() -> Router<Arc<App>> {
    Router::new()
        .route("/filesystem.Filesystem/Stat", post(filesystem::stat))
        .route("/filesystem.Filesystem/MakeDir", post(filesystem::make_dir))
        .route("/filesystem.Filesystem/Move", post(filesystem::rename))
        .route("/filesystem.Filesystem/ListDir", post(filesystem::list_dir))
        .route("/filesystem.Filesystem/Remove", post(filesystem::remove))
        .route("/filesystem.Filesystem/CreateWatcher", post(watch::create))
        .route(
            "/filesystem.Filesystem/GetWatcherEvents",
            post(watch::events),
        )
        .route("/filesystem.Filesystem/RemoveWatcher", post(watch::remove))
        .route("/filesystem.Filesystem/{call}", any(rpc::unsupported))
        .route("/process.Process/List", post(process::list))
        .route("/process.Process/SendInput", post(process::send_input))
        .route("/process.Process/CloseStdin", post(process::close_stdin))
        .route("/process.Process/SendSignal", post(process::send_signal))
        .route("/process.Process/Update", post(process::update))
        .route("/process.Process/{call}", any(rpc::unsupported))
}

/// Returns the routes of streaming calls.
fn streaming_calls() -> Router<Arc<App>> {
    Router::new()
        .route("/filesystem.Filesystem/WatchDir", post(watch::watch_dir))
        .route("/process.Process/Start", post(process::start))
        .route("/process.Process/Connect", post(process::connect))
}

/// Describes a failure as E2B's clients expect it, with its status.
fn described(failure: &Failure) -> (StatusCode, Value) {
    let status = match failure {
        Failure::Request(_) => StatusCode::BAD_REQUEST,
        failure => failure.status(),
    };
    let body = json!({ "code": status.as_u16(), "message": failure.message() });
    (status, body)
}

/// Renders a failure for E2B's clients.
fn failed(failure: &Failure) -> Response {
    let (status, body) = described(failure);
    (status, Json(body)).into_response()
}

/// Maps E2B's home directory to that of guests here.
fn at_home(path: &str) -> String {
    match path.strip_prefix("/home/user") {
        Some(below) if below.is_empty() || below.starts_with('/') => format!("/work{below}"),
        _ => path.to_owned(),
    }
}

/// A path in the work directory of a sandbox.
#[derive(Clone, Debug)]
struct WorkPath {
    /// Relative to the work directory, and empty for the work directory itself.
    relative: String,
}

impl WorkPath {
    /// Parses a path as E2B's clients write it: relative, or absolute below `/home/user`, the home directory at E2B, or
    /// below `/work`, the home directory of guests here.
    fn new(path: &str) -> Result<Self, Failure> {
        let path = at_home(path);
        let text = if path.starts_with('/') {
            path
        } else {
            format!("/work/{path}")
        };
        // Append a name, so that the work directory itself is valid too.
        let inside = GuestPath::of_file(&format!("{text}/x"));
        // The error quotes the client's path, without the appended name.
        let inside = inside.map_err(|error| GuestPath::of_file(&text).err().unwrap_or(error))?;
        let inside = inside.to_string();
        let relative = inside.strip_suffix('x').unwrap_or_default();
        Ok(Self {
            relative: relative.trim_end_matches('/').to_owned(),
        })
    }

    /// Returns the path relative to the work directory, as sessions expect it.
    fn as_str(&self) -> &str {
        if self.relative.is_empty() {
            "."
        } else {
            &self.relative
        }
    }

    /// Returns the absolute path in the guest.
    fn guest(&self) -> String {
        format!("/work/{}", self.relative)
            .trim_end_matches('/')
            .to_owned()
    }

    /// Returns the path of an entry of this directory.
    fn entry(&self, name: &str) -> Self {
        Self {
            relative: format!("{}/{name}", self.relative)
                .trim_start_matches('/')
                .to_owned(),
        }
    }

    /// Returns the file name.
    fn name(&self) -> String {
        let path = self.guest();
        path.rsplit('/').next().unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_confined_to_the_work_directory() {
        for (path, below) in [
            ("a/b", "a/b"),
            ("/home/user/a", "a"),
            ("/home/user", ""),
            ("/work/a/", "a"),
            ("", ""),
            (".", ""),
            ("a/../b", "b"),
            ("ax", "ax"),
        ] {
            assert_eq!(
                WorkPath::new(path).expect("a valid path").relative,
                below,
                "{path}"
            );
        }
        for path in [
            "..",
            "/home/user/..",
            "/home/users",
            "/etc/passwd",
            "/work/../etc",
            "a\0b",
        ] {
            let message = WorkPath::new(path).expect_err(path).to_string();
            assert!(!message.contains("/x"), "{message}");
        }
        let root = WorkPath::new("").expect("a valid path");
        assert_eq!(
            (root.guest(), root.entry("a").guest()),
            ("/work".into(), "/work/a".into())
        );
        assert_eq!((root.as_str(), root.name()), (".", "work".into()));
    }
}
